package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

const prefixOfAnnotations = "coreos.com/rkt/stage1/"

func TestAMisspeltNameIsAnErrorOfTheImage(t *testing.T) {
	for name, c := range map[string]struct {
		of   stage1test.Image
		want string
	}{
		"an entrypoint": {
			stage1test.Image{Annotations: map[string]string{prefixOfAnnotations + "entre": "/run"}},
			"manifest: unknown annotation coreos.com/rkt/stage1/entre: did you mean coreos.com/rkt/stage1/enter?",
		},
		"an entrypoint of apps": {
			stage1test.Image{Annotations: map[string]string{prefixOfAnnotations + "app/singal": "/run"}},
			"did you mean coreos.com/rkt/stage1/app/signal?",
		},
		"the features document": {
			stage1test.Image{Annotations: map[string]string{prefixOfAnnotations + "feature": "/features.json"}},
			"did you mean coreos.com/rkt/stage1/features?",
		},
		"a field": {
			stage1test.Image{Features: `{"fields": ["/process/args", "/process/arg"]}`},
			`rootfs/features.json: features document: "/process/arg" leads to no field of config.json: did you mean "/process/args"?`,
		},
		"a field in a list": {
			stage1test.Image{Features: `{"fields": ["/mounts/*/Options"]}`},
			`did you mean "/mounts/*/options"?`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ACIs{}.Inspect(t.Context(), c.of.Dir(t))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestAnUnknownNameIsAWarning(t *testing.T) {
	i, err := ACIs{}.Inspect(t.Context(), stage1test.Image{
		Features:    `{"fields": ["/process/args", "/linux/levitation/height", "/mounts/first"]}`,
		Annotations: map[string]string{prefixOfAnnotations + "levitate": "/socket", "example.com/entre": "mine"},
	}.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(i.Warnings(), "\n")
	for _, want := range []string{"unknown annotation coreos.com/rkt/stage1/levitate,", `"/linux/levitation/height"`, `/mounts is a list`} {
		if !strings.Contains(got, want) {
			t.Errorf("the warnings\n%s\ndo not say %q", got, want)
		}
	}
	if len(i.Warnings()) != 3 {
		t.Errorf("%d warnings, want 3:\n%s", len(i.Warnings()), got)
	}
}

func TestImagesOfTheRktABIHaveNamesOfTheirOwn(t *testing.T) {
	i, err := ACIs{}.Inspect(t.Context(), stage1test.Image{
		Features:    `{"fields": ["/process/arg"]}`,
		Annotations: map[string]string{prefixOfAnnotations + "interface-version": "6", prefixOfAnnotations + "entre": "/run"},
	}.Dir(t))
	if err != nil || len(i.Warnings()) > 0 {
		t.Errorf("%v, %v", i.Warnings(), err)
	}
}

func TestTheBundledImagesHaveKnownNamesOnly(t *testing.T) {
	for _, name := range []string{"native", "oci", "nspawn", "fly"} {
		dir := filepath.Join("../images", name)
		text, err := os.ReadFile(filepath.Join(dir, "manifest"))
		if err != nil {
			t.Fatal(err)
		}
		i := &Image{}
		if i.manifest, err = parseManifest(text, name); err != nil {
			t.Fatal(err)
		}
		if text, err = os.ReadFile(filepath.Join(dir, "features.json")); err == nil {
			err = json.Unmarshal(text, &i.features)
		}
		if err != nil || len(i.features.Fields) == 0 || len(i.Warnings()) > 0 {
			t.Errorf("%s: %d fields, %v, %v", name, len(i.features.Fields), i.Warnings(), err)
		}
	}
}
