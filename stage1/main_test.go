package stage1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// children is the bookkeeping of the test process, of which there can be one.
var children *proc.Children

// TestMain runs the tests, or one of the programs that fake entrypoints need
// because a shell cannot do it. After the tests nothing may be left: goroutines,
// processes, descriptors.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if program, ok := programs[os.Args[1]]; ok {
			if err := program(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if err := proc.SetSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	children = proc.NewChildren()
	return wait.Run(m, children.Close)
}

func openStore(t testing.TB) *image.Store {
	t.Helper()
	s, err := image.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const podUUID = "6733c088-a507-4694-aabf-edbe4fc5266f"

// fakePod is a pod directory with a fake stage1 attached. When the test ends,
// nothing of it may be left.
type fakePod struct {
	*Stage1
	images *image.Store
	dir    string
}

func newFakePod(t testing.TB, scripts stage1test.Scripts) *fakePod {
	t.Helper()
	return newPodOf(t, stage1test.Image{Scripts: scripts})
}

func newPodOf(t testing.TB, of stage1test.Image) *fakePod {
	t.Helper()
	stage1test.RequireRoot(t)
	images := openStore(t)
	i, err := images.Image(t.Context(), of.Dir(t), "")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePod{Stage1: New(i, i.Name(), children), images: images, dir: filepath.Join(t.TempDir(), podUUID)}
	if err := os.Mkdir(p.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	fds := openFDs(t)
	if err := p.Attach(p.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Detach(p.dir); err != nil {
			t.Error(err)
		}
		p.expectNoFiles(t)
		if m := mountsBelow(t, p.dir); len(m) > 0 {
			t.Errorf("mounts are left: %v", m)
		}
		wait.Observe(t, "no processes are left", func() (bool, string) {
			left := processesIn(p.dir)
			return len(left) == 0, fmt.Sprint(left)
		})
		wait.Observe(t, "as few descriptors are open as before", func() (bool, string) {
			now := openFDs(t)
			return now <= fds, fmt.Sprintf("%d, %d before", now, fds)
		})
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// expectNoFiles fails if a call has left its request or socket.
func (p *fakePod) expectNoFiles(t testing.TB) {
	t.Helper()
	for _, pattern := range []string{"request-*", "process-*", "tty-*"} {
		if left, _ := filepath.Glob(filepath.Join(p.dir, pattern)); len(left) > 0 {
			t.Errorf("files are left: %v", left)
		}
	}
}

func (p *fakePod) call(e abi.Entrypoint) pod.Call {
	c := pod.Call{Dir: p.dir, Leader: 77, Request: abi.Request{Entrypoint: e, Pod: podUUID}}
	if e == abi.Enter || strings.HasPrefix(string(e), "app/") {
		c.Request.App = "app-1"
	}
	if e == abi.Enter {
		c.Process = readProcess(`{"args":["sh"]}`)
	}
	return c
}

// readSpec reads a text that is well formed, whatever its types.
func readSpec(text string) *spec.App {
	d, err := spec.Read[json.RawMessage]([]byte(text))
	if err != nil {
		panic(err)
	}
	return &spec.App{Text: d.Text, Root: d.Root}
}

// readProcess reads the process of an exec.
func readProcess(text string) *spec.Process {
	p, err := spec.Read[specs.Process]([]byte(text))
	if err != nil {
		panic(err)
	}
	return p
}

// hurry makes all deadlines short.
func (p *fakePod) hurry(d time.Duration) {
	p.Limit = func(abi.Entrypoint) time.Duration { return d }
}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

// processesIn lists the processes whose working directory is in dir. If dir is a pod's,
// these are its entrypoints and the processes that they have started.
func processesIn(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var found []string
	for _, l := range links {
		if cwd, err := os.Readlink(l); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(l), "cmdline"))
			found = append(found, filepath.Base(filepath.Dir(l))+" "+strings.ReplaceAll(string(name), "\x00", " "))
		}
	}
	return found
}
