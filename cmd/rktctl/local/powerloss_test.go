package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// damages are the states in which a power loss leaves a file of the last half minute.
var damages = map[string]func(file string, text []byte) error{
	"empty":   func(file string, _ []byte) error { return os.WriteFile(file, nil, 0o600) },
	"zeros":   func(file string, text []byte) error { return os.WriteFile(file, make([]byte, len(text)), 0o600) },
	"half":    func(file string, text []byte) error { return os.WriteFile(file, text[:len(text)/2], 0o600) },
	"missing": func(file string, _ []byte) error { return os.Remove(file) },
}

// Nothing but the configuration of the network is flushed, so a power loss may damage every other file.
func TestALocalPodWhoseFilesWereLostWithThePowerIsListedAndRemoved(t *testing.T) {
	ctx := t.Context()
	b := newBox(t, "native")
	calls := b.withCNI()
	other := b.sandbox()
	p := b.sandbox()
	p.add("web", "exec sleep 1000")
	p.start("web")
	p.losePower()
	saved := filepath.Join(t.TempDir(), "saved")
	copyTree(t, p.path(), saved)
	files := p.files()
	delete(files, "network.conflist")
	for file := range files {
		for damage, do := range damages {
			t.Run(file+" "+damage, func(t *testing.T) {
				if err := os.RemoveAll(p.path()); err != nil {
					t.Fatal(err)
				}
				copyTree(t, saved, p.path())
				text, err := os.ReadFile(p.path(file))
				if err == nil {
					err = do(p.path(file), text)
				}
				if err != nil {
					t.Fatal(err)
				}
				q, err := b.Open(p.UUID())
				if err != nil {
					t.Fatal(err)
				}
				if st := q.PodStatus(ctx); !slices.Contains([]local.PodState{local.PodExited, local.PodDamaged, local.PodCreating}, st.State) {
					t.Errorf("the pod is %s", st.State)
				}
				apps, err := q.List(ctx)
				if err != nil || len(apps) != 1 || apps[0].State == local.Running {
					t.Errorf("apps: %+v, %v", apps, err)
				}
				next, err := b.Create(ctx, local.PodConfig{Stage1: b.stage1})
				if err != nil {
					t.Fatal(err)
				}
				if q, err = b.Open(p.UUID()); err == nil { // or the creation has removed what it took for a pod that is not finished
					err = q.Remove(ctx, false)
				}
				if err != nil && file != "pod.json" {
					t.Error(err)
				}
				if err := next.Remove(ctx, false); err != nil {
					t.Error(err)
				}
				if _, err := os.Lstat(p.path()); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the pod is left: %v", err)
				}
			})
		}
	}
	if st := other.PodStatus(ctx); st.State != local.PodRunning {
		t.Errorf("the other pod is %s", st.State)
	}
	if err := other.Remove(ctx, false); err != nil {
		t.Error(err)
	}
	if !strings.Contains(calls(), "DEL "+p.UUID()) {
		t.Errorf("the calls of the network's plugin: %q", calls())
	}
}

func (p *pod) path(elem ...string) string {
	return filepath.Join(append([]string{p.DataDir, "local", p.UUID()}, elem...)...)
}

// files returns the regular files of the pod that are not in an app's root.
func (p *pod) files() map[string]bool {
	p.Helper()
	files := map[string]bool{}
	err := filepath.WalkDir(p.path(), func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(p.path(), path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{"rootfs", "upper", "work", "copy"}, e.Name()):
			return fs.SkipDir
		case e.Type().IsRegular():
			files[rel] = true
		}
		return nil
	})
	if err != nil || !files["pod.json"] || !files["apps/web/app.json"] {
		p.Fatalf("files: %v, %v", files, err)
	}
	return files
}

// losePower ends the pod without a call, and moves its files to another boot.
func (p *pod) losePower() {
	p.Helper()
	ended := map[int]bool{}
	wait.Observe(p.T, "the pod's processes have ended and were reaped", func() (bool, string) {
		left := p.inCgroup()
		for _, pid := range left {
			ended[pid] = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for pid := range ended {
			if syscall.Kill(pid, 0) == nil {
				left = append(left, pid)
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
	boot, err := proc.BootID()
	if err != nil {
		p.Fatal(err)
	}
	const earlier = "00000000-0000-4000-8000-000000000000"
	for _, dir := range []string{p.path(), filepath.Join(p.DataDir, "pods/run", p.UUID())} {
		if err := disk.UnmountBelow(dir); err != nil {
			p.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() && e.Type() != fs.ModeSymlink {
				return err
			}
			if e.Type() == fs.ModeSymlink {
				if text, _ := os.Readlink(path); text == boot {
					return errors.Join(os.Remove(path), os.Symlink(earlier, path))
				}
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil && bytes.Contains(text, []byte(boot)) {
				err = os.WriteFile(path, bytes.ReplaceAll(text, []byte(boot), []byte(earlier)), 0o600)
			}
			return err
		})
		if err != nil {
			p.Fatal(err)
		}
	}
}

// inCgroup lists the processes in the pod's cgroups.
func (p *pod) inCgroup() (pids []int) {
	for _, root := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		dirs, _ := filepath.Glob(root + suite.cgroup + "/" + p.UUID())
		for _, dir := range dirs {
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Name() == "cgroup.procs" {
					text, _ := os.ReadFile(path)
					for word := range strings.FieldsSeq(string(text)) {
						pid, _ := strconv.Atoi(word)
						pids = append(pids, pid)
					}
				}
				return nil
			})
		}
	}
	return pids
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}
