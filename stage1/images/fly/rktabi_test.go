package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// These tests call the image as rkt called its own image fly, of interface version 5: with
// options, a lock and the files of a pod's directory.

const podID = "0f6c5b1e-7a3d-4e92-8b10-2d4f6a8c0e11"

// rktPod is a pod as rkt's stage 0 leaves it before run.
type rktPod struct {
	t    *testing.T
	dir  string
	root string // of the app
	run  *exec.Cmd
	out  bytes.Buffer
}

// newPod makes a pod of one app. section is the app's section in the pod's manifest. entry
// and pod are further fields of the app's entry and of the manifest.
func newPod(t *testing.T, section, entry, pod map[string]any) *rktPod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a chroot needs root")
	}
	for _, program := range []string{"/bin/busybox", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	p := &rktPod{t: t, dir: filepath.Join(t.TempDir(), podID)}
	p.root = filepath.Join(p.dir, "stage1/rootfs/opt/stage2/web/rootfs")
	for _, d := range []string{"bin", "etc", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(p.root, d), 0o755))
	}
	p.sh("go", "build", "-o", filepath.Join(p.dir, "stage1/rootfs/fly"), ".")
	for _, e := range []string{"run", "enter", "stop", "gc"} {
		must(t, os.Symlink("fly", filepath.Join(p.dir, "stage1/rootfs", e)))
	}
	p.sh("cp", "/bin/busybox", filepath.Join(p.root, "bin/busybox"))
	must(t, os.Symlink("busybox", filepath.Join(p.root, "bin/sh")))
	must(t, os.WriteFile(filepath.Join(p.root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\nweb:x:33:33::/:/bin/sh\n"), 0o644))
	app := map[string]any{"name": "web", "image": map[string]any{"id": "sha512-0"}, "app": section}
	for key, value := range entry {
		app[key] = value
	}
	manifest := map[string]any{"acKind": "PodManifest", "acVersion": "0.8.11", "apps": []any{app}}
	for key, value := range pod {
		manifest[key] = value
	}
	text, err := json.Marshal(manifest)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(p.dir, "pod"), text, 0o644))
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sh executes a program that must succeed. Tests copy programs with it and not by
// themselves: a child of another test may briefly inherit a file that this process has open
// for writing, and the exec of such a file fails.
func (p *rktPod) sh(args ...string) {
	p.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

func shell(script string) map[string]any {
	return map[string]any{"exec": []string{"sh", "-c", script}, "user": "0", "group": "0", "environment": []any{
		map[string]string{"name": "A", "value": "b c"},
	}}
}

// start calls run, with the lock, in a mount namespace of the pod's own.
func (p *rktPod) start(args ...string) {
	p.t.Helper()
	lock, err := os.Open(p.dir)
	must(p.t, err)
	defer lock.Close()
	must(p.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	p.t.Cleanup(cancel)
	p.run = exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--propagation", "slave", filepath.Join(p.dir, "stage1/rootfs/run")}, append(args, podID)...)...)
	p.run.Dir, p.run.Env = p.dir, []string{"PATH=" + os.Getenv("PATH"), "RKT_LOCK_FD=3", "RKT_SELINUX_CONTEXT=", "RKT_SELINUX_MOUNT_CONTEXT="}
	p.run.ExtraFiles = []*os.File{lock}
	p.run.Stdout, p.run.Stderr = &p.out, &p.out
	p.run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.run.WaitDelay = wait.Patience // what the app has left may keep the streams
	must(p.t, p.run.Start())
	p.t.Cleanup(func() {
		if p.run.ProcessState == nil {
			_ = p.run.Process.Kill()
			_ = p.run.Wait()
			p.t.Logf("run, which was killed, had said %q", p.out.String())
		}
		if p.t.Failed() { // processes of its group may be left
			_ = syscall.Kill(-p.run.Process.Pid, syscall.SIGKILL)
		}
	})
}

// ends waits for the end of run.
func (p *rktPod) ends(code int, says string) {
	p.t.Helper()
	_ = p.run.Wait()
	if got := p.run.ProcessState.ExitCode(); got != code || p.out.String() != says {
		p.t.Errorf("run ends with %d and says %q, want %d, %q", got, p.out.String(), code, says)
	}
}

// call calls another entrypoint.
func (p *rktPod) call(entrypoint string, args ...string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, "stage1/rootfs", entrypoint), args...)
	cmd.Dir, cmd.Env = p.dir, []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// up waits until the running app has made a file, and returns the app's pid.
func (p *rktPod) up() int {
	p.t.Helper()
	wait.Until(p.t, "the app runs", func() bool {
		_, err := os.Stat(filepath.Join(p.root, "tmp/up"))
		return err == nil
	})
	text, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	must(p.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid != p.run.Process.Pid {
		p.t.Errorf("pid holds %q, run is %d", text, p.run.Process.Pid)
	}
	return pid
}

func TestRunBecomesTheAppAsInRkt(t *testing.T) { // rkt-abi.md, section 4
	volume := t.TempDir()
	must(t, os.WriteFile(filepath.Join(volume, "f"), []byte("volume\n"), 0o644))
	section := shell(`echo "$A $AC_APP_NAME $HOME"; pwd; busybox id -u; busybox id -g; busybox cat /vol/f; busybox touch /vol/g 2>/dev/null || echo read-only
		busybox touch /data/g && echo data; busybox cat /etc/hosts; test -c /dev/null && test -d /proc/self && test -d /sys/fs && echo seen; exit 7`)
	section["workingDirectory"], section["user"], section["group"] = "/tmp", "web", "/etc/passwd"
	section["mountPoints"] = []any{map[string]any{"name": "vol", "path": "/vol"}, map[string]any{"name": "data", "path": "/data"}}
	p := newPod(t, section, nil, map[string]any{"volumes": []any{
		map[string]any{"name": "vol", "kind": "host", "source": volume, "readOnly": true}, map[string]any{"name": "data", "kind": "empty", "mode": "0777"},
	}})
	// These are all options that rkt 1.30 may pass.
	p.start("--debug", "--net=host", "--interactive", "--mds-token=x", "--local-config=/etc/rkt", "--hostname=box",
		"--dns-conf-mode=resolv=default,hosts=default", "--disable-capabilities-restriction", "--disable-paths", "--disable-seccomp")
	p.ends(7, "b c web /root\n/tmp\n33\n0\nvolume\nread-only\ndata\n127.0.0.1 localhost localdomain\nseen\n")
	if code, out := p.call("gc", "--debug", "--local-config", "/etc/rkt", podID); code != 0 || out != "" {
		t.Errorf("gc: exit code %d, %q", code, out)
	}
}

// The affinity may be that of the host's own processes.
func TestTheAppMayRunOnEveryCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	if all.Count() < 2 {
		t.Skip("needs two CPUs")
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	p := newPod(t, shell(`busybox nproc; exit 7`), nil, nil)
	must(t, unix.SchedSetaffinity(0, &one))
	defer func() { must(t, unix.SchedSetaffinity(0, &all)) }()
	p.start()
	p.ends(7, fmt.Sprintln(all.Count()))
}

func TestRunRefusesWhatItCannotDoAsInRkt(t *testing.T) { // traps 2; rkt-abi.md, section 4
	p := newPod(t, shell("true"), nil, nil)
	for args, words := range map[string]string{
		"--ipc=parent": "ipc", "--mutable": "mutable", "--private-users=1:2": "private-users", "--net=default": "--net=default",
	} {
		p.out.Reset()
		p.start(args)
		if _ = p.run.Wait(); p.run.ProcessState.ExitCode() != exitMisused || !strings.Contains(p.out.String(), words) {
			t.Errorf("%s: exit code %d, %q", args, p.run.ProcessState.ExitCode(), p.out.String())
		}
	}
	if code, out := p.call("run", "--net=host", podID); code != exitUnfit || !strings.Contains(out, "RKT_LOCK_FD") {
		t.Errorf("without a lock: exit code %d, %q", code, out)
	}
	p.out.Reset()
	p.start("--net=host", "--dns-conf-mode=resolv=guess")
	if _ = p.run.Wait(); p.run.ProcessState.ExitCode() != exitUnfit || !strings.Contains(p.out.String(), `"resolv=guess" is not known`) {
		t.Errorf("exit code %d, %q", p.run.ProcessState.ExitCode(), p.out.String())
	}
	must(t, os.WriteFile(filepath.Join(p.dir, "pod"), []byte(`{"apps": [{"name": "a"}, {"name": "b"}]}`), 0o644))
	p.out.Reset()
	p.start("--net=host")
	p.ends(exitUnfit, "the pod has 2 apps, and can have one\n")
}

// After the end of an app, another process may get its pid, and after a reboot any other may have it.
func TestStopSignalsNoProcessThatHasThePidOfTheAppNow(t *testing.T) {
	for name, forge := range map[string]func(dir string, victim int) error{
		"a pid that is reused": func(string, int) error { return nil },
		"an earlier boot": func(dir string, victim int) error {
			start, err := proc.StartTime(victim)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "born"), fmt.Appendf(nil, "%d 9c1d6a3e-0000-4000-8000-000000000000\n", start), 0o644))
		},
	} {
		p := newPod(t, shell("true"), nil, nil)
		p.start("--net=host")
		p.ends(0, "")
		victim := exec.Command("sleep", "1000")
		victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, victim.Start())
		for _, file := range []string{"pid", "pgid"} {
			must(t, os.WriteFile(filepath.Join(p.dir, file), fmt.Appendf(nil, "%d\n", victim.Process.Pid), 0o644))
		}
		must(t, forge(p.dir, victim.Process.Pid))
		if code, out := p.call("stop", "--force", podID); code != 0 || out != "" {
			t.Errorf("%s: stop: exit code %d, %q", name, code, out)
		}
		s, err := proc.ReadStat(victim.Process.Pid)
		if err != nil || s.State == 'Z' {
			t.Errorf("%s: stop has killed the process: %v", name, err)
		}
		_ = victim.Process.Kill()
		_ = victim.Wait()
	}
}

func TestThePodIsLockedWhileTheAppRuns(t *testing.T) {
	p := newPod(t, shell(`echo >/tmp/up; exec busybox sleep 1000`), nil, nil)
	p.start("--net=host")
	p.up()
	dir, err := os.Open(p.dir)
	must(t, err)
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the lock can be had: %v", err)
	}
	if code, out := p.call("stop", podID); code != 0 || out != "" {
		t.Errorf("stop: exit code %d, %q", code, out)
	}
	_ = p.run.Wait()
	if sig := p.run.ProcessState.Sys().(syscall.WaitStatus).Signal(); sig != syscall.SIGTERM {
		t.Errorf("the app ends by %v", sig)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Errorf("the lock cannot be had when the app is over: %v", err)
	}
	if code, out := p.call("stop", "--force", podID); code != 0 || out != "" {
		t.Errorf("stop of what is over: exit code %d, %q", code, out)
	}
}

func TestEnterIsTheAppsUserInTheAppsRoot(t *testing.T) { // rkt-abi.md, section 8
	section := shell(`echo >/tmp/up; exec busybox sleep 1000`)
	section["user"], section["group"] = "web", "34"
	p := newPod(t, section, nil, nil)
	must(t, os.Chmod(filepath.Join(p.root, "tmp"), 0o1777))
	p.start("--net=host")
	pid := fmt.Sprint(p.up())
	const script = `echo "$A $AC_APP_NAME"; pwd; busybox id -u; busybox id -g; busybox cat /etc/passwd | busybox wc -l; exit 5`
	want := "\n/\n33\n34\n2\n"
	if code, out := p.call("enter", "--pid="+pid, "--appname=web", "--", "sh", "-c", script); code != 5 || out != "b c web"+want {
		t.Errorf("exit code %d, %q", code, out)
	}
	must(t, os.MkdirAll(filepath.Join(p.dir, "stage1/rootfs/rkt/env"), 0o755))
	must(t, os.WriteFile(filepath.Join(p.dir, "stage1/rootfs/rkt/env/web"), []byte("A=file\nPATH=/bin\n"), 0o644))
	if code, out := p.call("enter", "--pid="+pid, "--appname=web", "--", "sh", "-c", script); code != 5 || out != "file "+want {
		t.Errorf("with a file of its environment: exit code %d, %q", code, out)
	}
	if code, out := p.call("enter", "--pid="+pid, "--appname=web", "--", "absent"); code != exitUnfit || !strings.Contains(out, "executable file not found in $PATH") {
		t.Errorf("a missing program: exit code %d, %q", code, out)
	}
	if code, out := p.call("stop", "--force", podID); code != 0 || out != "" {
		t.Errorf("stop: exit code %d, %q", code, out)
	}
	_ = p.run.Wait()
	if code, out := p.call("enter", "--pid="+pid, "--appname=web", "--", "sh"); code != exitGone || !strings.Contains(out, "has gone") {
		t.Errorf("in an app that is over: exit code %d, %q", code, out)
	}
}

func TestStopLeavesTheAppsProcessGroupAloneWhileTheAppLives(t *testing.T) {
	p := newPod(t, shell(`busybox sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/up; trap 'exit 3' TERM; while :; do busybox sleep 0.1; done`), nil, nil)
	p.start("--net=host")
	p.up()
	var child int
	wait.Until(t, "the pid is written", func() bool {
		text, err := os.ReadFile(filepath.Join(p.root, "tmp/up"))
		must(t, err)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child != 0
	})
	if code, out := p.call("stop", podID); code != 0 || out != "" {
		t.Errorf("stop: exit code %d, %q", code, out)
	}
	p.ends(3, "")
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("what the app had started: %v", err)
	}
	// The app has ended, so stop signals the processes that are left of its group.
	if code, out := p.call("stop", podID); code != 0 || out != "" {
		t.Errorf("stop: exit code %d, %q", code, out)
	}
	wait.Until(t, "the end of what the app has left", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || bytes.Contains(text, []byte(") Z "))
	})
}
