package disk

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
)

func TestThePodManifestIsThatOfTheAppcLibrary(t *testing.T) {
	m := schema.BlankPodManifest()
	m.Apps = schema.AppList{}
	m.Annotations.Set(mutableName, "true")
	want, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if newPodManifest != string(want) {
		t.Errorf("it is\n%s, want\n%s", newPodManifest, want)
	}
}

func TestAnAppIsDescribedInBothManifests(t *testing.T) {
	app := &types.App{Exec: types.Exec{"/bin/true"}, User: "1", Group: "2"}
	text, entry, err := Describe("web", app)
	if err != nil {
		t.Fatal(err)
	}
	var image schema.ImageManifest
	if err := json.Unmarshal(text, &image); err != nil {
		t.Fatal(err)
	}
	if image.Name != "containerd.io/container/web" || image.App == nil || image.App.Exec[0] != "/bin/true" || image.App.User != "1" {
		t.Errorf("the image manifest is %s", text)
	}
	sum := sha512.Sum512(text)
	if entry.Name != "web" || *entry.Image.Name != image.Name || entry.Image.ID.String() != "sha512-"+hex.EncodeToString(sum[:]) || entry.App != app {
		t.Errorf("the entry is %+v", entry)
	}
}
