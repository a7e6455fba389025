package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// mappedTo changes a spec to one with a user namespace whose root is a user of the host.
func mappedTo(host uint32) func(*specs.Spec) {
	return func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		maps := []specs.LinuxIDMapping{{HostID: host, Size: 65536}}
		s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
	}
}

// A process in a user namespace belongs to the host's root until it has executed its
// program. After that it belongs to its user, like any other process.
func TestAProcessInAUserNamespaceIsTheHostsUntilItsProgramIsExecuted(t *testing.T) {
	p := startPod(t)
	owner := func(pid int) uint32 {
		t.Helper()
		var st unix.Stat_t
		must(t, unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &st))
		return st.Uid
	}
	for _, host := range []uint32{100000, 0} {
		app := fmt.Sprint("a", host)
		r := p.request(app, "sleep", "1000")
		respec(t, &r, mappedTo(host))
		pid := p.add(r)
		if uid := owner(pid); uid != 0 {
			t.Errorf("map to %d: before its program the memory is of user %d", host, uid)
		}
		p.expect(0, abi.AppStart, app)
		if uid := owner(pid); uid != host {
			t.Errorf("map to %d: the memory of the program is of user %d", host, uid)
		}
		a := p.enter(app, "e", [3]*os.File{}, "sleep", "1000")
		if a.code != 0 {
			t.Fatalf("enter: %d %s", a.code, a.text)
		}
		if uid := owner(a.ready.PID); uid != host {
			t.Errorf("map to %d: the memory of an exec is of user %d", host, uid)
		}
	}
}

func TestAUserNamespaceThatCanReadTheStage1sProgramIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		host uint32
		make func(t *testing.T, rootfs string)
		want string
	}{
		{"its mode lets everybody read it", 100000, func(t *testing.T, rootfs string) {
			must(t, os.Chmod(filepath.Join(rootfs, "native"), 0o755))
		}, "mode 0711"},
		{"it is the host's root's, on a filesystem without id-mapped mounts", 0, func(t *testing.T, rootfs string) {
			over := t.TempDir()
			for _, d := range []string{"lower", "upper", "work"} {
				must(t, os.Mkdir(filepath.Join(over, d), 0o755))
			}
			must(t, os.Rename(filepath.Join(rootfs, "native"), filepath.Join(over, "lower/native")))
			for _, d := range []string{"rkt/status", "opt/stage2"} {
				must(t, os.MkdirAll(filepath.Join(over, "upper", d), 0o755))
			}
			for _, e := range []string{"run", "app_add", "app_start", "enter"} {
				must(t, os.Symlink("native", filepath.Join(over, "upper", e)))
			}
			data := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", over, over, over)
			must(t, unix.Mount("overlay", rootfs, "overlay", 0, data))
			t.Cleanup(func() { must(t, unix.Unmount(rootfs, unix.MNT_DETACH)) })
		}, "id-mapped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPod(t)
			rootfs := filepath.Join(p.dir, "stage1/rootfs")
			program, err := os.ReadFile(binary)
			must(t, err)
			must(t, os.Remove(filepath.Join(rootfs, "native"))) // a link to what all tests have
			must(t, os.WriteFile(filepath.Join(rootfs, "native"), program, 0o700))
			must(t, os.Chmod(filepath.Join(rootfs, "native"), 0o711))
			c.make(t, rootfs)
			if a := p.start(abi.Request{}); a.code != 0 {
				t.Fatalf("run: exit code %d: %s", a.code, a.text)
			}
			r := p.request("made", "sleep", "1000")
			respec(t, &r, mappedTo(c.host))
			p.refused(abi.ExitNotImplemented, "linux.uidMappings: ", r)
			p.refused(abi.ExitNotImplemented, c.want, r)
			user := userNamespaceOf(t, int(c.host))
			r = p.request("joined", "sleep", "1000")
			respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces = joined(user, "user") })
			p.refused(abi.ExitNotImplemented, c.want, r)

			// The host's own needs no protection.
			p.add(p.request("plain", "sleep", "1000"))
			p.expect(0, abi.AppStart, "plain")
		})
	}
}

// userNamespaceOf returns a process in a user namespace whose root is a user of the host.
func userNamespaceOf(t *testing.T, host int) int {
	t.Helper()
	maps := []syscall.SysProcIDMap{{HostID: host, Size: 65536}}
	cmd := exec.Command(busybox, "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
