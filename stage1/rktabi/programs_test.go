package rktabi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// aPod is a directory of a pod, whose image notes in a directory which of its programs are executed.
type aPod struct {
	dir, notes string
	image      *image.Image
}

// newPod makes a pod. The name of its directory decides whether its tree is an overlay: a comma cannot be in the
// options of one.
func newPod(t *testing.T, name string) *aPod {
	t.Helper()
	stage1test.RequireRoot(t)
	p := &aPod{dir: filepath.Join(t.TempDir(), name), notes: t.TempDir()}
	must(t, os.Mkdir(p.dir, 0o750))
	note := func(e abi.Entrypoint) string { return `. "${0%/*}/lib.sh"; note image-` + string(e) }
	of := stage1test.Image{
		Annotations: map[string]string{abi.AnnotationVersion: "5"},
		Scripts:     stage1test.Scripts{abi.GC: note(abi.GC), abi.Stop: note(abi.Stop)},
	}.Dir(t)
	must(t, os.WriteFile(filepath.Join(of, "rootfs/lib.sh"), []byte("note() { echo \"$PWD\" >"+p.notes+"/$1; }\n"), 0o644))
	must(t, os.MkdirAll(filepath.Join(of, "rootfs/rkt/status"), 0o755))
	must(t, os.Mkdir(filepath.Join(of, "rootfs/etc"), 0o755))
	var err error
	p.image, err = openStore(t).Image(t.Context(), of, "")
	must(t, err)
	return p
}

// open opens the pod's stage1, as a new process does.
func (p *aPod) open(t *testing.T) pod.Stage1 {
	s := Open(p.image, "rkt", children, stage1.Rules{})
	t.Cleanup(func() { must(t, s.Detach(p.dir)) })
	return s
}

// attached opens the pod's stage1, and attaches the pod.
func (p *aPod) attached(t *testing.T) *oneApp {
	s := p.open(t).(*oneApp)
	must(t, s.Attach(p.dir))
	return s
}

func (p *aPod) call(e abi.Entrypoint) pod.Call {
	return pod.Call{Dir: p.dir, Request: abi.Request{Pod: filepath.Base(p.dir), Entrypoint: e}}
}

// replaced writes the programs of an app into a tree, in place of the image's.
func (p *aPod) replaced(t *testing.T, tree string) {
	for _, e := range []abi.Entrypoint{abi.GC, abi.Stop} {
		must(t, os.MkdirAll(tree, 0o755))
		must(t, os.RemoveAll(filepath.Join(tree, string(e))))
		must(t, os.WriteFile(filepath.Join(tree, string(e)), []byte("#!/bin/sh\necho >"+p.notes+"/app-"+string(e)+"\n"), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(tree, "lib.sh"), []byte("note() { echo >"+p.notes+"/app-lib; }\n"), 0o755))
}

// expect fails the test unless exactly these programs were executed, in the pod's directory.
func (p *aPod) expect(t *testing.T, programs ...string) {
	t.Helper()
	entries, err := os.ReadDir(p.notes)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(programs, " ") {
		t.Errorf("executed: %v, want %v", names, programs)
	}
	for _, name := range programs {
		if cwd, err := os.ReadFile(filepath.Join(p.notes, name)); err != nil || strings.TrimSpace(string(cwd)) != p.dir {
			t.Errorf("%s was executed in %q: %v", name, cwd, err)
		}
	}
}

// eachTree runs a case for a pod whose tree is an overlay, and for one whose tree is a copy.
func eachTree(t *testing.T, test func(t *testing.T, p *aPod)) {
	for name, dir := range map[string]string{"overlay": "pod", "copy": "a,pod"} {
		t.Run(name, func(t *testing.T) { test(t, newPod(t, dir)) })
	}
}

// An app that is root in the isolating container of an image of rkt's can leave its chroot and write to the tree.
func TestEntrypointsAreTheImagesAfterAnAppHasReplacedThem(t *testing.T) {
	eachTree(t, func(t *testing.T, p *aPod) {
		s := p.attached(t)
		must(t, s.Within(func() error {
			p.replaced(t, filepath.Join(p.dir, stage1.RootfsDir))
			return nil
		}))
		for _, e := range []abi.Entrypoint{abi.Stop, abi.GC} {
			if err := s.Invoke(t.Context(), p.call(e)); err != nil {
				t.Error(err)
			}
		}
		p.expect(t, "image-gc", "image-stop")
	})
}

// After a reboot, the pod's mounts have gone, and the files that the app has written are still there.
func TestTheGcAfterARebootIsTheImages(t *testing.T) {
	eachTree(t, func(t *testing.T, p *aPod) {
		s := p.attached(t)
		must(t, s.Within(func() error {
			p.replaced(t, filepath.Join(p.dir, stage1.RootfsDir))
			return nil
		}))
		must(t, s.Detach(p.dir))
		if err := p.open(t).Invoke(t.Context(), p.call(abi.GC)); err != nil {
			t.Error(err)
		}
		p.expect(t, "image-gc")
	})
}

// The first process of a pod, which the file pid may name, can be in the container's mount namespace. There the
// container decides what the paths of the host lead to.
func TestNothingIsExecutedInAContainersMountNamespace(t *testing.T) {
	p := newPod(t, "pod")
	p.attached(t)
	root := t.TempDir()
	for _, of := range []string{stage1.RootfsDir, "stage1/image"} {
		p.replaced(t, filepath.Join(root, p.dir, of))
	}
	must(t, os.MkdirAll(filepath.Join(root, p.notes), 0o755))
	up := filepath.Join(p.dir, "up")
	script := `set -e; mount --bind "$0" "$0"; cd "$0"
for d in bin sbin lib lib64 usr proc dev; do [ ! -e /$d ] || { mkdir -p $d; mount --rbind /$d $d; }; done
mkdir -p old; mount --bind "` + p.notes + `" ".` + p.notes + `"; exec 3>` + up + `; pivot_root . old; umount -l old; echo >&3; exec sleep 1000`
	c := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, root)
	c.Stderr = os.Stderr
	release := children.Expect()
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		release()
	})
	if !eventually(func() bool { st, err := os.Stat(up); return err == nil && st.Size() > 0 }) {
		t.Fatal("the container did not start")
	}
	must(t, os.WriteFile(filepath.Join(p.dir, immutable.PidFile), []byte(strconv.Itoa(c.Process.Pid)+"\n"), 0o644))
	for _, e := range []abi.Entrypoint{abi.Stop, abi.GC} {
		_ = p.open(t).Invoke(t.Context(), p.call(e)) // stop may be refused
	}
	p.expect(t, "image-gc")
}

// Programs in a pod may leave anything in its tree. It must not make stage 0 hang, or change a file of the host.
func TestATreeThatAnAppHasWrittenIsAttachedAgain(t *testing.T) {
	hosts := ""
	fifo := func(path string) error {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		return unix.Mkfifo(path, 0o644)
	}
	link := func(path string) error {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		return os.Symlink(hosts, path)
	}
	for name, c := range map[string]struct {
		path string
		make func(path string) error
	}{
		"a link where exits are":    {"rkt/status", link},
		"a fifo where exits are":    {"rkt/status", fifo},
		"a link where apps are":     {"opt", link},
		"a link where units are":    {"etc/systemd", link},
		"a fifo where a unit is":    {ownUnits + "/" + readyUnit + ".d/stage0.conf", fifo},
		"a link in place of nspawn": {ownNspawn, link},
	} {
		t.Run(name, func(t *testing.T) {
			eachTree(t, func(t *testing.T, p *aPod) {
				hosts = filepath.Join(t.TempDir(), "host")
				must(t, os.Mkdir(hosts, 0o700))
				s := p.attached(t)
				must(t, s.Detach(p.dir))
				for _, tree := range []string{filepath.Join(p.dir, stage1.RootfsDir), filepath.Join(p.dir, overlayDir, p.image.Digest(), "upper")} {
					if _, err := os.Lstat(tree); err == nil {
						must(t, os.RemoveAll(filepath.Join(tree, c.path)))
						must(t, c.make(filepath.Join(tree, c.path)))
					}
				}
				done := make(chan error, 1)
				go func() { done <- p.open(t).Invoke(context.Background(), p.call(abi.GC)) }()
				select {
				case <-done: // an error is fine: the pod is removed without gc
				case <-time.After(patience):
					t.Fatal("gc hangs")
				}
				if st, err := os.Stat(hosts); err != nil || st.Mode().Perm() != 0o700 {
					t.Errorf("the host's directory is %v, %v", st, err)
				}
				if entries, err := os.ReadDir(hosts); err != nil || len(entries) != 0 {
					t.Errorf("in the host's directory are %v, %v", entries, err)
				}
			})
		})
	}
}

// After the death of the shim, `delete` uses the mount namespace of the pod's supervisor. A pod of an earlier release
// has no mount of the image there.
func TestDeleteExecutesTheImagesProgramsBesideTheSupervisor(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		eachTree(t, func(t *testing.T, p *aPod) {
			s := p.attached(t)
			must(t, s.Within(func() error {
				p.replaced(t, filepath.Join(p.dir, stage1.RootfsDir))
				if earlier {
					return unix.Unmount(filepath.Join(p.dir, stage1.ImageDir), unix.MNT_DETACH)
				}
				return nil
			}))
			release := children.Expect()
			var supervisor *os.Process
			must(t, s.Within(func() (err error) {
				supervisor, err = os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{})
				return err
			}))
			t.Cleanup(func() {
				_ = supervisor.Kill()
				_, _ = supervisor.Wait()
				release()
			})
			must(t, os.WriteFile(filepath.Join(p.dir, immutable.PpidFile), []byte(strconv.Itoa(supervisor.Pid)+"\n"), 0o644))
			for _, e := range []abi.Entrypoint{abi.Stop, abi.GC} {
				if err := p.open(t).Invoke(t.Context(), p.call(e)); err != nil {
					t.Error(err)
				}
			}
			p.expect(t, "image-gc", "image-stop")
		})
	}
}

// Stage 0's calls see the tree by a mount on which the kernel executes nothing and follows no link. `run` and the pod
// have another one.
func TestACallsViewOfTheTreeHasNoProgramsAndNoLinks(t *testing.T) {
	eachTree(t, func(t *testing.T, p *aPod) {
		s := p.attached(t)
		tree := filepath.Join(p.dir, stage1.RootfsDir)
		var links [2]error
		var execution error
		try := func() error {
			for n, path := range []string{"/link", "/rkt/link"} {
				_, links[n] = os.Stat(tree + path)
			}
			var program *os.Process
			program, execution = os.StartProcess(tree+"/gc", []string{"gc"}, &os.ProcAttr{})
			if execution == nil {
				_, execution = program.Wait()
			}
			return nil
		}
		defer children.Expect()()
		must(t, s.Within(func() error {
			p.replaced(t, tree)
			return errors.Join(os.Symlink(p.notes, tree+"/link"), os.Symlink(p.notes, tree+"/rkt/link"), try())
		}))
		if links != [2]error{} || execution != nil {
			t.Errorf("as run: %v, %v", links, execution)
		}
		sup, err := s.Run(t.Context(), p.call(abi.Run), openDir(t, p.dir))
		must(t, err)
		defer func() {
			must(t, sup.Kill())
			<-sup.Done
		}()
		must(t, s.Within(try))
		if !errors.Is(links[0], unix.ELOOP) || !errors.Is(links[1], unix.ELOOP) || !errors.Is(execution, syscall.EACCES) {
			t.Errorf("as any other call: %v, %v; want ELOOP and EACCES", links, execution)
		}
	})
}

func openDir(t *testing.T, dir string) *os.File {
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}
