package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
)

// faulty is a stage1 image with an error.
type faulty struct {
	name string
	// manifest replaces parts of a correct manifest. An empty replacement means no manifest.
	manifest func(correct string) string
	// programs are shell scripts in rootfs/, by name. correctPrograms has those that are not
	// listed here.
	programs map[string]string
	without  []string // files that the image lacks
	// says is a text that the error of Create must contain.
	says []string
}

// correctManifest and correctPrograms make a stage1 that works, except that it isolates
// nothing.
const correctManifest = `{
  "acKind": "ImageManifest", "acVersion": "0.8.11", "name": "integration.test/stage1",
  "annotations": [
    {"name": "coreos.com/rkt/stage1/interface-version", "value": "7"},
    {"name": "coreos.com/rkt/stage1/run", "value": "/run"},
    {"name": "coreos.com/rkt/stage1/app/add", "value": "/app_add"},
    {"name": "coreos.com/rkt/stage1/app/start", "value": "/app_start"},
    {"name": "coreos.com/rkt/stage1/app/rm", "value": "/app_rm"},
    {"name": "coreos.com/rkt/stage1/features", "value": "/features.json"}
  ]
}`

const ready = `printf '{"pid": %s}\n' $$ >&$RKT_READY_FD; `

var correctPrograms = map[string]string{
	"run":       ready + `exec sleep 1000`,
	"app_add":   `echo "app/add was reached" >&$RKT_ERROR_FD; exit 1`,
	"app_start": `exit 0`,
	"app_rm":    `exit 0`,
}

var faultyStage1s = []faulty{
	{name: "correct", says: []string{"app/add was reached"}},
	{name: "nomanifest", without: []string{"manifest"}, says: []string{"manifest"}},
	{name: "nojson", manifest: func(string) string { return "not JSON" }, says: []string{"manifest"}},
	{name: "norun", manifest: without("stage1/run"), says: []string{"coreos.com/rkt/stage1/run"}},
	{name: "version", manifest: replaced(`"7"`, `"99"`), says: []string{"99"}},
	{name: "nofile", without: []string{"rootfs/run"}, says: []string{"/run"}},
	{name: "nofeatures", without: []string{"rootfs/features.json"}, says: []string{"features.json"}},
	{name: "undeclared", manifest: without("stage1/features"), says: []string{"/process"}},
	{name: "escapes", manifest: replaced(`"/run"`, `"/../../../bin/true"`), says: []string{"run"}},
	{name: "crashes", programs: map[string]string{"run": `echo "the flux capacitor is empty" >&$RKT_ERROR_FD; exit 3`}, says: []string{"run", "the flux capacitor is empty"}},
	{name: "stderr", programs: map[string]string{"run": `echo "said on stderr" >&2; exit 3`}, says: []string{"run", "said on stderr"}},
	{name: "signalled", programs: map[string]string{"run": `kill -SEGV $$`}, says: []string{"run"}},
	{name: "returns", programs: map[string]string{"run": `exit 0`}, says: []string{"run"}},
	{name: "garbage", programs: map[string]string{"run": `echo garbage >&$RKT_READY_FD; exec sleep 1000`}, says: []string{"run"}},
	{name: "nopid", programs: map[string]string{"run": `echo '{}' >&$RKT_READY_FD; exec sleep 1000`}, says: []string{"run"}},
	{name: "pidone", programs: map[string]string{"run": `echo '{"pid": 1}' >&$RKT_READY_FD; exec sleep 1000`}, says: []string{"run", "process 1 ", "before the shim"}},
	{name: "endless", programs: map[string]string{"run": `exec cat /dev/zero >&$RKT_READY_FD`}, says: []string{"run"}},
	{name: "hangs", programs: map[string]string{"run": `trap '' TERM; while :; do sleep 1; done`}, says: []string{"run"}},
	{name: "addfails", programs: map[string]string{"app_add": `echo 'exec: "x": executable file not found in $PATH' >&$RKT_ERROR_FD; exit 1`},
		says: []string{"app/add", "executable file not found in $PATH"}},
	{name: "addgarbage", programs: map[string]string{"app_add": `echo garbage >&$RKT_READY_FD; exit 0`}, says: []string{"app/add"}},
	{name: "addsilent", programs: map[string]string{"app_add": `exit 0`}, says: []string{"app/add"}},
	{name: "refuses", programs: map[string]string{"app_add": `echo "no /linux/seccomp here" >&$RKT_ERROR_FD; exit 7`}, says: []string{"app/add", "no /linux/seccomp here"}},
	{name: "leaves", programs: map[string]string{"app_add": `sleep 1000 & exit 1`}, says: []string{"app/add"}},
}

func replaced(old, with string) func(string) string {
	return func(m string) string { return strings.Replace(m, old, with, 1) }
}

// without removes the annotation whose name ends in name.
func without(name string) func(string) string {
	return func(m string) string {
		var kept []string
		for _, l := range strings.Split(m, "\n") {
			if !strings.Contains(l, name+`"`) {
				kept = append(kept, l)
			}
		}
		m = strings.Join(kept, "\n")
		return strings.Replace(m, "},\n  ]", "}\n  ]", 1)
	}
}

// install puts the image beside the shim, with a link that selects it.
func (f faulty) install(t *testing.T) (runtime string) {
	t.Helper()
	dir := filepath.Join(suite.shims, "stage1", f.name)
	for _, d := range []string{"rootfs/opt/stage2", "rootfs/rkt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	manifest := correctManifest
	if f.manifest != nil {
		manifest = f.manifest(manifest)
	}
	write(t, filepath.Join(dir, "manifest"), manifest)
	write(t, filepath.Join(dir, "rootfs/features.json"), read(t, filepath.Join(suite.shims, "stage1/native/rootfs/features.json")))
	for name, script := range correctPrograms {
		if s, ok := f.programs[name]; ok {
			script = s
		}
		path := filepath.Join(dir, "rootfs", name)
		write(t, path, "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range f.without {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(suite.shims, "containerd-shim-rkt-"+f.name+"-v1")
	if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil {
		t.Fatal(err)
	}
	return "io.containerd.rkt-" + f.name + ".v1"
}

// All cases run at once, because some take as long as an entrypoint may.
func TestAFaultyStage1FailsCreateWithItsFileOrEntrypointAndLeavesNothing(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		var all sync.WaitGroup
		for _, f := range faultyStage1s {
			runtime := f.install(t)
			container := c.containerOf(t, c.client, c.image(t, c.client), runtime, c.id(), []string{"true"})
			ctx := c.context(t)
			all.Go(func() {
				start := time.Now()
				_, err := container.NewTask(ctx, cio.NullIO)
				if err == nil {
					t.Errorf("%s: the task was created", f.name)
					return
				}
				for _, want := range append(f.says, f.name) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %q is not in the error:\n\t%v", f.name, want, err)
					}
				}
				if errdefs.IsNotImplemented(err) {
					t.Errorf("%s: containerd takes not implemented for an older Task API (requirements.md#G5): %v", f.name, err)
				}
				t.Logf("%s after %s: %v", f.name, time.Since(start).Round(10*time.Millisecond), err)
			})
		}
		all.Wait()
		c.expectNothingLeft(t)
	})
}

func TestAnUnknownStage1IsRefusedByName(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		if err := os.Symlink("containerd-shim-rkt-v1", filepath.Join(suite.shims, "containerd-shim-rkt-absent-v1")); err != nil {
			t.Fatal(err)
		}
		container := c.containerOf(t, c.client, c.image(t, c.client), "io.containerd.rkt-absent.v1", c.id(), []string{"true"})
		if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "absent") {
			t.Errorf("create: %v, want the stage1's name in it", err)
		}
	})
}

func TestWithoutRootTheShimRefusesInASentence(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		cmd := exec.Command(filepath.Join(suite.shims, "containerd-shim-rkt-v1"),
			"-namespace", "default", "-id", "nobody", "-address", filepath.Join(c.daemon.Dir(), "grpc.sock"), "start")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if text := strings.TrimSpace(string(out)); err == nil || !strings.Contains(text, "root") || strings.Contains(text, "\n") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
}

func TestTheShimTellsItsVersion(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, _ *column) {
		out, err := exec.Command(filepath.Join(suite.shims, "containerd-shim-rkt-v1"), "-v").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"containerd-shim-rkt-v1", "Version:", "Revision:", "Go version:"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q is not in %q (requirements.md#B3)", want, out)
			}
		}
	})
}

func TestTheRuntimeMayBeAPath(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		byPath := *c
		byPath.runtime = filepath.Join(suite.shims, c.shimProgram())
		r := byPath.run(t, []string{"--rm"}, byPath.id(), "echo", "found").must(t)
		r.mustSay(t, "found\n")
		c.serial = byPath.serial
	})
}
