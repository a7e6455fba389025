package pod

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

func TestAnAppThatIsNotAdmittedLeavesNothing(t *testing.T) {
	w := newWorld(t)
	var asked []map[string]string
	w.cfg.Admit = func(annotations map[string]string) error {
		asked = append(asked, annotations)
		if annotations["stage1"] != "" {
			return errdefs.ErrInvalidArgument
		}
		return nil
	}
	bundle := filepath.Join(t.TempDir(), "a")
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs"), 0o711); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateApp(t.Context(), AppConfig{
		ID: "a", Bundle: bundle, Rootfs: bareRoot{}, Stdio: &noStdio{},
		Spec: readSpec(t, `{"ociVersion":"1.1.0","annotations":{"stage1":"other"},"process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}}`),
	})
	if !errdefs.IsInvalidArgument(err) || len(asked) != 1 || asked[0]["stage1"] != "other" {
		t.Errorf("%v, asked about %v", err, asked)
	}
	if words := w.events.words(); len(words) > 0 {
		t.Errorf("events %q", words)
	}
	for _, state := range []string{"embryo", "prepare", "run", "exited-garbage"} {
		if dirs := w.podDirs(state); len(dirs) > 0 {
			t.Errorf("%s holds %v", state, dirs)
		}
	}
	if _, err := os.Lstat(filepath.Join(bundle, "rkt.json")); !os.IsNotExist(err) {
		t.Errorf("rkt.json in the bundle: %v", err)
	}
	w.mustCreate("a", "exit 0") // the id is free
	w.mustDelete("a", "")
}

func TestThePodsRecordSaysWhyItHasItsStage1(t *testing.T) {
	w := newWorld(t)
	w.cfg.Choice = func() disk.Stage1Record { return disk.Stage1Record{By: "annotation", Excused: []string{"/hostname"}} }
	w.mustCreate("a", "exit 0")
	dirs := w.podDirs("run")
	if len(dirs) != 1 {
		t.Fatalf("pods %v", dirs)
	}
	text, err := os.ReadFile(filepath.Join(w.data, "pods/run", dirs[0], "shim.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Stage1 disk.Stage1Record }
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	got := record.Stage1
	if got.Name != w.stage1.Name() || got.Digest != w.stage1.Digest() || got.By != "annotation" || !slices.Equal(got.Excused, []string{"/hostname"}) {
		t.Errorf("the record is %+v", got)
	}
	w.mustDelete("a", "")
}
