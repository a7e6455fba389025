package rktabi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

// Programs in the pods of rkt's images can write to the pod's tree, and an image may contain
// links. Stage 0 must not follow such a link to a file of the host.
func TestLinksInAPodsTreeLeadStage0ToNoFileOfTheHost(t *testing.T) {
	const app, host = "app-1", "a file of the host\n"
	write := func(_ *testing.T, dir string) { _ = aComposition(dir, app).Write() }
	plain := t.TempDir()
	for _, d := range []string{"rkt/status", "rkt/env"} {
		must(t, os.MkdirAll(filepath.Join(plain, stage1.RootfsDir, d), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(plain, "pod"), podManifest(t), 0o640))
	must(t, aComposition(plain, app).Write()) // so that below it fails for the links alone
	for name, c := range map[string]struct {
		link   string // in the tree
		target string // in the host's directory
		do     func(t *testing.T, dir string)
	}{
		"the environment":        {"rkt/env/" + app, "file", write},
		"where environments are": {"rkt/env", ".", write},
		"where the app is":       {"opt/stage2/" + app, ".", write},
		"where apps are":         {"opt/stage2", ".", write},
		"the app's manifest":     {"opt/stage2/" + app + "/manifest", "file", write},
		"the mark of its making": {"rkt/status/" + app + "-created", "file", write},
		"the mark of its start":  {"rkt/status/" + app + "-started", "file", func(_ *testing.T, dir string) { _ = immutable.MarkStarted(dir, app) }},
		"where marks are":        {"rkt/status", ".", func(_ *testing.T, dir string) { _ = immutable.MarkStarted(dir, app) }},
		"a unit of its systemd":  {ownUnits + "/a.conf", "file", func(_ *testing.T, dir string) { _ = putUnit(dir, "a.conf", "x") }},
		"where units are":        {ownUnits, ".", func(_ *testing.T, dir string) { _ = putUnit(dir, "new/a.conf", "x") }},
		"what is erased":         {"rkt/env", ".", func(_ *testing.T, dir string) { _ = eraseInTree(&immutable.Composition{Dir: dir, Name: "file"}) }},
		"where its streams are":  {"rkt/" + muxDir, ".", func(_ *testing.T, dir string) { _, _ = openMuxDir(dir, "rkt/"+muxDir+"/"+app) }},
		"its own files, upwards": {"rkt/env/" + app, "../pod/shim.json", write},
		"its own state, upwards": {"rkt/status", "../pod", func(_ *testing.T, dir string) { _ = immutable.MarkStarted(dir, app) }},
		"its endpoints": {"rkt/" + muxDir + "/" + app + "/endpoints", "file", func(t *testing.T, dir string) {
			if m, err := readMux(dir, app); err == nil {
				t.Errorf("read %+v", m)
			}
		}},
		"where its sockets are": {"rkt/" + muxDir, ".", func(t *testing.T, dir string) {
			m := &mux{pod: dir, dir: filepath.Join(stage1.RktDir, muxDir), sockets: map[string]string{"stdout": "file"}}
			if _, err := m.dial("stdout"); err == nil || !strings.Contains(err.Error(), "symbolic links") {
				t.Errorf("dial: %v", err)
			}
		}},
		"its terminal": {"rkt/" + muxDir + "/" + app + "/stage2-pts", "file", func(t *testing.T, dir string) {
			if _, err := openPTY(dir, filepath.Join(stage1.RktDir, muxDir, app, "stage2-pts")); err == nil {
				t.Error("it was opened")
			}
			if _, err := openPTY("/dev", "null"); err != errNoPTY {
				t.Errorf("another device: %v", err)
			}
		}},
		"the fifo of its streams": {"rkt/" + muxDir + "/" + app + "/stdout", "file", makeStdout},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			hosts, dir := filepath.Join(base, "host"), filepath.Join(base, "pod")
			tree := filepath.Join(dir, stage1.RootfsDir)
			for _, d := range []string{hosts, tree + "/rkt/status", tree + "/rkt/env", tree + "/opt/stage2", tree + "/" + ownUnits} {
				must(t, os.MkdirAll(d, 0o755))
			}
			for _, file := range []string{hosts + "/file", dir + "/shim.json"} {
				must(t, os.WriteFile(file, []byte(host), 0o600))
			}
			must(t, os.WriteFile(filepath.Join(dir, "pod"), podManifest(t), 0o640))
			link := filepath.Join(tree, c.link)
			must(t, os.RemoveAll(link))
			must(t, os.MkdirAll(filepath.Dir(link), 0o755))
			must(t, os.Symlink(filepath.Join(hosts, c.target), link))

			c.do(t, dir)

			for _, file := range []string{hosts + "/file", dir + "/shim.json"} {
				if text, err := os.ReadFile(file); err != nil || string(text) != host {
					t.Errorf("%s is now %q, %v", file, text, err)
				}
			}
			if entries, err := os.ReadDir(hosts); err != nil || len(entries) != 1 {
				t.Errorf("the host's directory has %v, %v", entries, err)
			}
			if st, err := os.Stat(hosts); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("the host's directory is %v, %v", st, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 5 {
				t.Errorf("the pod's directory has %v, %v", entries, err)
			}
		})
	}
}

func aComposition(dir, app string) *immutable.Composition {
	a := &appc.App{App: types.App{Exec: types.Exec{"/bin/true"}, User: "0", Group: "0"}}
	return &immutable.Composition{Dir: dir, Name: types.ACName(app), App: a}
}

// makeStdout makes the fifo that an app's systemd writes its output to.
func makeStdout(t *testing.T, dir string) {
	d, err := openMuxDir(dir, "rkt/"+muxDir+"/app-1")
	must(t, err)
	defer d.Close()
	o := &unitStreams{}
	defer o.close()
	_ = o.make(d, 1, "stdout", specs.User{UID: 1000})
}

func podManifest(t *testing.T) []byte {
	t.Helper()
	text, err := schema.BlankPodManifest().MarshalJSON()
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
