package rktfront_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The bundled images are called here by the rkt ABI: with options, a lock and the files of a
// pod's directory.

const (
	busybox = "/bin/busybox"
	podID   = "0f6c5b1e-7a3d-4e92-8b10-2d4f6a8c0e11"
)

var images string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rktfront-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("../../../scripts/stage1-images", dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, out)
		return 1
	}
	images = dir
	return wait.Run(m)
}

// rktPod is a pod as rkt's stage 0 leaves it before run.
type rktPod struct {
	t     *testing.T
	image string
	dir   string
	bin   string // of the entrypoints
	run   *exec.Cmd
	out   bytes.Buffer
}

func eachImage(t *testing.T, test func(t *testing.T, p *rktPod)) {
	t.Helper()
	for _, image := range []string{"native", "nspawn", "oci"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			test(t, newRktPod(t, image))
		})
	}
}

func newRktPod(t *testing.T, image string) *rktPod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	for _, program := range []string{busybox, map[string]string{"native": busybox, "nspawn": "systemd-nspawn", "oci": "runc"}[image]} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	dir := filepath.Join(t.TempDir(), podID)
	rootfs := filepath.Join(dir, "stage1/rootfs")
	must(t, os.MkdirAll(filepath.Dir(rootfs), 0o755))
	copyOf(t, filepath.Join(images, image, "rootfs"), rootfs)
	must(t, os.MkdirAll(filepath.Join(rootfs, "rkt/status"), 0o755))
	must(t, os.MkdirAll(filepath.Join(rootfs, "rkt/env"), 0o755))
	return &rktPod{t: t, image: image, dir: dir, bin: filepath.Join(rootfs, map[string]string{"nspawn": "usr/bin"}[image])}
}

// copyOf copies programs by another process. A file that this process has open for writing
// is for a moment also open in children of other tests, and cannot be executed then.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// app makes the files of an app, and the pod's manifest with it alone.
func (p *rktPod) app(name string, section map[string]any, more map[string]any) {
	p.t.Helper()
	root := filepath.Join(p.dir, "stage1/rootfs/opt/stage2", name, "rootfs")
	for _, d := range []string{"bin", "etc", "tmp", "proc", "dev", "sys"} {
		must(p.t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	copyOf(p.t, busybox, filepath.Join(root, "bin/busybox"))
	must(p.t, os.Symlink("busybox", filepath.Join(root, "bin/sh")))
	must(p.t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\nweb:x:33:33::/:/bin/sh\n"), 0o644))
	must(p.t, os.WriteFile(filepath.Join(root, "../manifest"), []byte(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"app"}`), 0o644))
	runtimeApp := map[string]any{"name": name, "image": map[string]any{"id": "sha512-0"}, "app": section}
	manifest := map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": []any{runtimeApp}}
	for key, value := range more {
		if key == "volumes" {
			manifest[key] = value
		} else {
			runtimeApp[key] = value
		}
	}
	p.manifest(manifest)
}

func (p *rktPod) manifest(m map[string]any) {
	p.t.Helper()
	b, err := json.Marshal(m)
	must(p.t, err)
	must(p.t, os.WriteFile(filepath.Join(p.dir, "pod"), b, 0o644))
}

func shell(script string) map[string]any {
	return map[string]any{"exec": []string{"sh", "-c", script}, "user": "0", "group": "0", "environment": []any{
		map[string]string{"name": "PATH", "value": "/bin"}, map[string]string{"name": "A", "value": "b c"},
	}}
}

// start calls run, with the lock.
func (p *rktPod) start(args ...string) {
	p.t.Helper()
	p.startOn(nil, args...)
}

// startOn calls run on a terminal, if there is one.
func (p *rktPod) startOn(x *terminal, args ...string) {
	p.t.Helper()
	lock, err := os.Open(p.dir)
	must(p.t, err)
	defer lock.Close()
	must(p.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	p.run = p.command("run", append(args, podID)...)
	p.run.ExtraFiles = []*os.File{lock}
	p.run.Env = append(p.run.Env, "RKT_LOCK_FD=3", "RKT_SELINUX_CONTEXT=", "RKT_SELINUX_MOUNT_CONTEXT=")
	p.run.Stdout, p.run.Stderr = &p.out, &p.out
	if x != nil {
		x.on(p.run)
	}
	must(p.t, p.run.Start())
	p.t.Cleanup(func() {
		if p.run.ProcessState == nil {
			_ = p.run.Process.Signal(syscall.SIGTERM)
			_ = p.run.Wait()
			p.t.Logf("run, which was ended, had said %q", p.out.String())
		}
	})
}

func (p *rktPod) command(entrypoint string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, entrypoint), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

// call calls an entrypoint and returns its exit code and what it has written.
func (p *rktPod) call(entrypoint string, args ...string) (int, string) {
	p.t.Helper()
	cmd := p.command(entrypoint, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (p *rktPod) expect(code int, out, entrypoint string, args ...string) {
	p.t.Helper()
	if c, o := p.call(entrypoint, args...); c != code || o != out {
		p.t.Errorf("%s %v: exit code %d, %q; want %d, %q", entrypoint, args, c, o, code, out)
	}
}

// ends waits for the end of run.
func (p *rktPod) ends(code int) {
	p.t.Helper()
	_ = p.run.Wait()
	if got := p.run.ProcessState.ExitCode(); got != code {
		p.t.Errorf("run ends with %d, want %d: %s", got, code, p.out.String())
	}
}

func (p *rktPod) file(path string) string {
	b, err := os.ReadFile(filepath.Join(p.dir, path))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *rktPod) await(what string, holds func() bool) {
	p.t.Helper()
	wait.Until(p.t, what, holds)
}

func TestAPodWithItsAppsRunsAsRktHasIt(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		volume := t.TempDir()
		must(t, os.WriteFile(filepath.Join(volume, "f"), []byte("volume\n"), 0o644))
		section := shell(`echo "$A $AC_APP_NAME"; pwd; busybox id -u; busybox id -g; busybox hostname; busybox cat /vol/f
			busybox touch /vol/g 2>/dev/null || echo read-only; busybox touch /empty/g && echo empty; busybox grep CapBnd /proc/self/status; exit 7`)
		section["workingDirectory"], section["user"], section["group"] = "/tmp", "web", "34"
		section["isolators"] = []any{
			map[string]any{"name": "os/linux/capabilities-retain-set", "value": map[string]any{"set": []string{"CAP_KILL", "CAP_CHOWN"}}},
			map[string]any{"name": "resource/memory", "value": map[string]any{"limit": "64M"}},
		}
		p.app("web", section, map[string]any{
			"mounts":  []any{map[string]string{"volume": "vol", "path": "/vol"}, map[string]string{"volume": "empty", "path": "/empty"}},
			"volumes": []any{map[string]any{"name": "vol", "kind": "host", "source": volume, "readOnly": true}, map[string]any{"name": "empty", "kind": "empty", "mode": "0777"}},
		})
		p.start("--debug", "--net=host", "--hostname=box", "--local-config=/etc/rkt")
		p.ends(7)
		if want := "b c web\n/tmp\n33\n34\nbox\nvolume\nread-only\nempty\nCapBnd:\t0000000000000021\n"; p.out.String() != want {
			t.Errorf("the app says %q, want %q", p.out.String(), want)
		}
		if got := p.file("stage1/rootfs/rkt/status/web"); got != "7\n" {
			t.Errorf("its end is recorded as %q", got)
		}
		p.expect(0, "", "gc", podID)
	})
}

func TestAnAppHasItsMountPointsAndFilesOfNames(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		hosts, err := os.ReadFile("/etc/hosts")
		if err != nil {
			t.Skip("needs an /etc/hosts: ", err)
		}
		section := shell(`busybox touch /data/f && echo data; busybox cat /etc/hosts; busybox touch /etc/hosts 2>/dev/null || echo read-only`)
		section["mountPoints"] = []any{map[string]any{"name": "data", "path": "/data"}}
		p.app("web", section, nil)
		p.start("--net=host", "--dns-conf-mode=resolv=default,hosts=host")
		p.ends(0)
		if want := "data\n" + string(hosts) + "read-only\n"; p.out.String() != want {
			t.Errorf("the app says %q, want %q", p.out.String(), want)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "sharedVolumes/web-data/f")); err != nil {
			t.Error(err)
		}
	})
}

func TestAMutablePodGetsAppsAsRktHasIt(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.manifest(map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": []any{}})
		p.start("--net=host", "--mutable")
		p.await("there is a supervisor", func() bool {
			to, err := os.Readlink(filepath.Join(p.dir, "stage1/rootfs/rkt/supervisor-status"))
			return err == nil && to == "ready"
		})
		pid := strings.TrimSpace(p.file("pid"))
		p.app("web", shell(`trap "" TERM; echo up; echo up >/tmp/up; while :; do busybox sleep 0.1; done`), nil)
		must(t, os.WriteFile(filepath.Join(p.dir, "stage1/rootfs/rkt/env/web"), []byte("PATH=/bin\nOF=file\n"), 0o644))
		p.expect(0, "", "app_add", "--debug=false", "--uuid="+podID, "--app=web")
		up := filepath.Join(p.dir, "stage1/rootfs/opt/stage2/web/rootfs/tmp/up")
		if _, err := os.Stat(up); err == nil {
			t.Error("the app runs before app/start")
		}
		p.expect(0, "", "app_start", "--debug=false", "--app=web")
		p.await("the app runs", func() bool { _, err := os.Stat(up); return err == nil })
		p.expect(5, "file 0\n", "enter", "--pid="+pid, "--appname=web", "--", "sh", "-c", `echo "$OF $(busybox id -u)"; exit 5`)
		if code, out := p.call("enter", "--pid="+pid, "--appname=web", "--", "absent"); code == 0 || !strings.Contains(out, "executable file not found in $PATH") {
			t.Errorf("enter of a missing program: exit code %d, %q", code, out)
		}
		if code, _ := p.call("app_rm", "--debug=false", "--app=web"); code == 0 {
			t.Error("a running app was removed")
		}
		p.expect(0, "", "app_stop", "--debug=false", "--app=web")
		if got := p.file("stage1/rootfs/rkt/status/web"); got != "9\n" {
			t.Errorf("its end is recorded as %q, want the number of the signal", got)
		}
		p.expect(0, "", "app_rm", "--debug=false", "--app=web")
		p.expect(0, "", "app_rm", "--debug=false", "--app=web")
		if code, out := p.call("app_add", "--debug=false", "--uuid="+podID, "--app=other"); code == 0 || !strings.Contains(out, "there is no app other") {
			t.Errorf("app/add of what the manifest does not have: exit code %d, %q", code, out)
		}
		p.expect(0, "", "stop", podID)
		p.ends(0)
		if p.out.String() != "up\n" {
			t.Errorf("through the streams of run came %q", p.out.String())
		}
	})
}

func TestWhatCannotBeHadHereIsRefusedByName(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		for words, isolator := range map[string]map[string]any{
			"isolator os/linux/new: it is not supported": {"name": "os/linux/new", "value": 1},
			"there is no set @systemd/basic-io":          {"name": "os/linux/seccomp-retain-set", "value": map[string]any{"set": []string{"@systemd/basic-io"}}},
			"errno ESPRESSO is not known":                {"name": "os/linux/seccomp-remove-set", "value": map[string]any{"set": []string{"reboot"}, "errno": "ESPRESSO"}},
		} {
			must(t, os.RemoveAll(filepath.Join(p.dir, "stage1/rootfs/opt/stage2/web")))
			section := shell("true")
			section["isolators"] = []any{isolator}
			p.app("web", section, nil)
			p.out.Reset()
			p.start("--net=host")
			if err := p.run.Wait(); err == nil || !strings.Contains(p.out.String(), words) {
				t.Errorf("%v: %q, want %q in it", err, p.out.String(), words)
			}
		}
		if code, out := p.call("run", "--net=default", podID); code == 0 || !strings.Contains(out, "--net=default") {
			t.Errorf("exit code %d, %q", code, out)
		}
		if code, out := p.call("run", "--net=host", "--unheard-of", podID); code == 0 || !strings.Contains(out, "unheard-of") {
			t.Errorf("exit code %d, %q", code, out)
		}
	})
}

func TestSystemCallsAreFilteredAsTheIsolatorSays(t *testing.T) { // trap 6
	eachImage(t, func(t *testing.T, p *rktPod) {
		filter := func(mode, errno string, set ...string) map[string]any {
			return map[string]any{"name": "os/linux/seccomp-" + mode + "-set", "value": map[string]any{"set": set, "errno": errno}}
		}
		const script = `busybox mkdir /tmp/d; busybox unshare -u busybox true; busybox mount -t tmpfs none /tmp; busybox uname -s; exit 3`
		for _, c := range []struct {
			name, says string
			isolator   map[string]any
		}{
			{"calls", "mkdir: can't create directory '/tmp/d': Function not implemented\nLinux\n", filter("remove", "ENOSYS", "mkdir", "mkdirat")},
			{"default", "Bad system call\nBad system call\nLinux\n", nil},
			{"rkt", "unshare: unshare(0x4000000): Permission denied\nmount: mounting none on /tmp failed: Permission denied\nLinux\n", filter("retain", "EACCES", "@rkt/default-whitelist")},
			{"docker", "unshare: unshare(0x4000000): Operation not permitted\nmount: permission denied (are you root?)\nLinux\n", filter("remove", "EPERM", "@docker/default-blacklist")},
			{"systemd", "Bad system call\nLinux\n", filter("remove", "", "@systemd/mount")},
		} {
			section := shell(script)
			section["isolators"] = []any{
				map[string]any{"name": "os/linux/no-new-privileges", "value": true},
				map[string]any{"name": "os/linux/capabilities-retain-set", "value": map[string]any{"set": []string{"CAP_SYS_ADMIN"}}},
			}
			if c.isolator != nil {
				section["isolators"] = append(section["isolators"].([]any), c.isolator)
			}
			p.app(c.name, section, nil)
			p.out.Reset()
			p.start("--net=host")
			p.ends(3)
			if got := strings.ReplaceAll(p.out.String(), " (core dumped)", ""); got != c.says {
				t.Errorf("%s: %q, want %q", c.name, got, c.says)
			}
		}
	})
}
