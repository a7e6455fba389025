package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// base is where the tests' cgroups are, so that nothing else is touched.
var base = fmt.Sprintf("/rkt-test-%d", os.Getpid())

func TestMain(m *testing.M) {
	code := wait.Run(m)
	if h, err := host(); err == nil {
		for _, dir := range h.places(base) {
			if subs, _ := os.ReadDir(dir); slices.ContainsFunc(subs, os.DirEntry.IsDir) {
				fmt.Printf("cgroups left behind in %s\n", dir)
				code = 1
			}
			_ = os.Remove(dir)
		}
	}
	os.Exit(code)
}

// places returns the directories at a path of all hierarchies.
func (h *hierarchies) places(path string) []string {
	r := h.record(path)
	return distinct(r.made())
}

func needHost(t testing.TB) *hierarchies {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	h, err := host()
	if err != nil {
		t.Skip("no cgroups here: ", err)
	}
	return h
}

func needV1(t testing.TB) *hierarchies {
	t.Helper()
	h := needHost(t)
	if h.version != 1 {
		t.Skip("needs cgroup version 1")
	}
	return h
}

// needV2 skips the test unless the host has version 2 with its controllers.
func needV2(t testing.TB) *hierarchies {
	t.Helper()
	h := needMemory(t)
	if h.version != 2 {
		t.Skip("needs cgroup version 2")
	}
	return h
}

// needMemory skips the test if memory is not accounted.
func needMemory(t testing.TB) *hierarchies {
	t.Helper()
	h := needHost(t)
	file := filepath.Join(h.roots["memory"], "memory.usage_in_bytes")
	if h.version == 2 {
		file = filepath.Join(h.roots[""], "memory.stat")
	}
	if _, err := os.Stat(file); err != nil {
		t.Skip("memory is not accounted: ", err)
	}
	return h
}

// below makes a cgroup with controllers below a cgroup, and returns the files to enter
// it.
func below(t testing.TB, g *Group, controllers ...string) (dirs []string, tasks string) {
	t.Helper()
	if g.Version() == 2 {
		for _, c := range controllers {
			if err := os.WriteFile(filepath.Join(g.Dir(""), "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				t.Fatal(err)
			}
		}
		dirs = []string{filepath.Join(g.Dir(""), "sub")}
	} else {
		for _, c := range append(controllers, "devices") {
			dirs = append(dirs, filepath.Join(g.Dir(c), "sub"))
		}
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dirs, map[int]string{1: "tasks", 2: "cgroup.procs"}[g.Version()]
}

func create(t testing.TB, name string, res *specs.LinuxResources) *Group {
	t.Helper()
	g, err := Maker{}.Create(Path{Spec: base + "/" + name, Namespace: "default", ID: name}, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	return g
}

func createAt(t testing.TB, p Path) *Group {
	t.Helper()
	g, err := Maker{}.Create(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	return g
}

func destroy(t testing.TB, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Error(err)
	}
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// enter runs a script that enters a cgroup by itself. It returns when the script has
// entered.
func enter(t testing.TB, g *Group, script string) inside {
	t.Helper()
	file := "tasks"
	if g.Version() == 2 {
		file = "cgroup.procs"
	}
	return enterDirs(t, g.dirs, file, script)
}

// inside is a process in a cgroup.
type inside struct {
	*exec.Cmd
	ended chan struct{} // closed when it was reaped
}

func enterDirs(t testing.TB, dirs []string, file, script string) inside {
	t.Helper()
	join := ""
	for _, d := range dirs {
		f := file
		if _, err := os.Stat(filepath.Join(d, f)); err != nil {
			f = "cgroup.procs" // in the version 2 hierarchy of a hybrid host
		}
		join += "echo 0 > " + d + "/" + f + " || exit 99; "
	}
	cmd := exec.Command("/bin/sh", "-c", join+"echo in; exec >/dev/null; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	buf := make([]byte, 3)
	n, _ := out.Read(buf)
	go func() { _ = cmd.Wait(); close(done) }()
	if string(buf[:n]) != "in\n" {
		t.Fatalf("the process could not enter: %q", buf[:n])
	}
	return inside{cmd, done}
}

func read(t testing.TB, g *Group, controller, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir(controller), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func ptr[T any](v T) *T { return &v }
