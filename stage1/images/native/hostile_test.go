package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The apps of these tests are root with every capability. So they may replace every
// file at which an exec looks.

// hostile starts an app that executes a script and then sleeps, once the script
// has succeeded.
func (p *pod) hostile(app, script string, change func(*specs.Spec)) (pid int) {
	p.t.Helper()
	r := p.request(app, "busybox", "sh", "-ec", script+"\nbusybox touch /tmp/done; exec busybox sleep 1000")
	respec(p.t, &r, func(s *specs.Spec) {
		all := []string{"CAP_SYS_ADMIN", "CAP_MKNOD", "CAP_DAC_OVERRIDE"}
		s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}})
		if change != nil {
			change(s)
		}
	})
	pid = p.add(r)
	p.expect(0, abi.AppStart, app)
	wait.Until(p.t, "the app's script: "+script, func() bool {
		_, err := os.Stat(filepath.Join(r.Rootfs, "tmp/done"))
		return err == nil
	})
	return pid
}

func scoreOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	must(t, err)
	return strings.TrimSpace(string(b))
}

func TestAnExecsOOMScoreIsItsOwnWhateverTheAppHasMadeOfItsProc(t *testing.T) {
	for name, script := range map[string]string{
		"its own file": `busybox mkdir /tmp/p; busybox mount -o bind /proc /tmp/p; busybox mount -t tmpfs none /proc
			busybox mkdir /proc/self; busybox touch /proc/self/oom_score_adj
			busybox mount -o bind /tmp/p/1/oom_score_adj /proc/self/oom_score_adj`,
		"another's directory": "busybox mount -o bind /proc/1 /proc",
		"nothing":             "busybox umount -l /proc",
		"an empty directory":  "busybox mount -t tmpfs none /proc",
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			first, score := 200, 300
			pid := p.hostile("web", script, func(s *specs.Spec) { s.Process.OOMScoreAdj = &first })
			for way, by := range ways {
				process := specs.Process{Args: []string{"sleep", "1000"}, Cwd: "/", Env: []string{"PATH=/bin"}, OOMScoreAdj: &score}
				by(&process)
				raw, err := json.Marshal(process)
				must(t, err)
				a := p.call(abi.Enter, entrypoint{request: abi.Request{App: "web", Exec: way, Container: "ctr-web", Process: raw}})
				if got := scoreOf(t, pid); got != "200" {
					t.Errorf("%s: the app's first process has score %s, want 200", way, got)
				}
				if a.code != 0 {
					t.Fatalf("%s: enter: %d %s", way, a.code, a.text)
				}
				if got := scoreOf(t, a.ready.PID); got != "300" {
					t.Errorf("%s: the exec has score %s, want 300", way, got)
				}
			}
		})
	}
}

func TestAnExecsTerminalIsOfTheAppsDevptsWhateverIsInThePlaceOfPtmx(t *testing.T) {
	for name, script := range map[string]string{
		"a fifo":               "busybox mkfifo /dev/ptmx",
		"a file":               "echo mine > /dev/ptmx",
		"a node":               "busybox mknod /dev/ptmx c 5 2",
		"a tty":                "busybox mknod /dev/ptmx c 5 0",
		"a directory":          "busybox mkdir /dev/ptmx",
		"a link to sysrq":      "busybox ln -s /proc/sysrq-trigger /dev/ptmx",
		"a link to descriptor": "busybox ln -s /proc/self/fd/3 /dev/ptmx",
		"a link to a program":  "busybox ln -s /proc/self/exe /dev/ptmx",
		"nothing":              "true",
	} {
		for way, by := range ways {
			t.Run(name+", "+way, func(t *testing.T) {
				p := startPod(t)
				p.hostile("web", "busybox rm /dev/ptmx; "+script, nil)
				master := p.terminal("web", by)
				expectLine(t, master, "a terminal /dev/pts/0")
				p.exited("web", "e", 0, 0)
			})
		}
	}
	for name, script := range map[string]string{
		"a tmpfs with a fifo":           "busybox mount -t tmpfs none /dev/pts; busybox mkfifo /dev/pts/ptmx",
		"a link":                        "busybox umount -l /dev/pts; busybox rmdir /dev/pts; busybox ln -s /proc/1/root/dev/pts /dev/pts",
		"a slave in the master's place": "busybox mount -o bind /dev/zero /dev/pts/ptmx",
	} {
		t.Run("a devpts that is none: "+name, func(t *testing.T) {
			p := startPod(t)
			p.hostile("web", script, nil)
			listener := p.listen()
			defer unix.Close(listener)
			for way, by := range ways {
				a := p.call(abi.Enter, entrypoint{request: p.wantsTerminal("web", by)})
				if a.code == 0 || !strings.Contains(a.text, "/dev/pts") {
					t.Errorf("%s: enter: exit code %d, %q, want an error that names /dev/pts", way, a.code, a.text)
				}
			}
		})
	}
}

// listen makes the console socket of execs.
func (p *pod) listen() (listener int) {
	p.t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(p.t, err)
	must(p.t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(p.dir, "x.sock")}))
	must(p.t, unix.Listen(fd, 1))
	return fd
}

// wantsTerminal returns the request of an exec on a terminal, which is made in a way.
func (p *pod) wantsTerminal(app string, by func(*specs.Process)) abi.Request {
	p.t.Helper()
	process := specs.Process{Args: []string{"sh", "-c", "test -t 0 && echo a terminal $(busybox tty)"}, Cwd: "/", Env: []string{"PATH=/bin"}}
	by(&process)
	raw, err := json.Marshal(process)
	must(p.t, err)
	return abi.Request{App: app, Exec: "e", Container: "ctr-" + app, Process: raw, Terminal: true, ConsoleSocket: filepath.Join(p.dir, "x.sock")}
}

// terminal executes a program on a terminal in an app, and returns its master.
func (p *pod) terminal(app string, by func(*specs.Process)) *os.File {
	p.t.Helper()
	listener := p.listen()
	defer unix.Close(listener)
	if a := p.call(abi.Enter, entrypoint{request: p.wantsTerminal(app, by)}); a.code != 0 {
		p.t.Fatalf("enter: exit code %d: %s", a.code, a.text)
	}
	return receiveMaster(p.t, listener)
}
