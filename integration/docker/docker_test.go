package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// The output, input and exit code of a program, and the reason why a program could not be
// executed, which Docker's daemon derives from the text of the shim's error.
func TestRun(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		if r := e.run(t, []string{"--rm"}, "testprog", "both", "out", "err"); r != (result{"out\n", "err\n", 0}) {
			t.Errorf("%+v", r)
		}
		if r := e.call(t, "given\n", "run", "--rm", "--interactive", image.BusyboxName, "cat"); r.stdout != "given\n" || r.code != 0 {
			t.Errorf("%+v", r)
		}
		for program, code := range map[string]int{
			"exit 42": 42, "kill -KILL 1; sleep 1": 0, "kill -TERM $$; sleep 1": 0,
		} {
			if r := e.run(t, []string{"--rm"}, "sh", "-c", program); r.code != code {
				t.Errorf("%s: %+v", program, r)
			}
		}
		for _, bad := range []struct {
			program, words string
			code           int
		}{
			{"no-such-program", "executable file not found in $PATH", 127},
			{"/no/such/program", "no such file or directory", 127},
			{"/etc/not-executable", "permission denied", 126},
			{"/etc", "permission denied", 126}, // these words are the daemon's own
			{"/etc/passwd/x", "not a directory", 125},
		} {
			if r := e.run(t, []string{"--rm"}, bad.program); r.code != bad.code || !strings.Contains(r.stderr, bad.words) {
				t.Errorf("%s: exit code %d, want %d: %s", bad.program, r.code, bad.code, r.stderr)
			}
		}
		script := "touch /written; hostname; ulimit -n; cat /proc/sys/net/ipv4/ip_forward; df /dev/shm | awk '/shm/ {print $2}'; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"
		r := e.run(t, []string{"--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit", "nofile=100:200",
			"--sysctl", "net.ipv4.ip_forward=1", "--hostname", "box", "--shm-size", "1m"}, "sh", "-c", script)
		want := "box 100 1 1024 CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2"
		if got := strings.Join(strings.Fields(r.stdout), " "); got != want || !strings.Contains(r.stderr, "Read-only file system") {
			t.Errorf("%q, want %q; %s", got, want, r.stderr)
		}
		own := e.run(t, []string{"--rm"}, "readlink", "/proc/self/ns/time").stdout
		if host, err := os.Readlink("/proc/self/ns/time"); err == nil && (strings.TrimSpace(own) != host) != (e.stage1 == "native") {
			t.Errorf("the time namespace is %s, the host's %s", own, host)
		}
	})
}

// The daemon puts the interface into the namespace of the process whose pid Create has
// returned, before Start.
func TestNetwork(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		e.detached(t, "web", nil, "sh", "-c", "mkdir /www && echo served >/www/index.html && exec httpd -f -h /www")
		address := e.inspect(t, "web", "{{.NetworkSettings.Networks.bridge.IPAddress}}")
		if out := e.must(t, "exec", "web", "ip", "-o", "-4", "addr"); !strings.Contains(out, "eth0") || !strings.Contains(out, address+"/") || !strings.Contains(out, "127.0.0.1/8") {
			t.Errorf("%s is not there:\n%s", address, out)
		}
		wait.ObserveWithin(t, patience, "another container is served", func() (bool, string) {
			r := e.run(t, []string{"--rm"}, "wget", "-q", "-O", "-", "http://"+address+"/")
			return r.stdout == "served\n", r.stderr
		})
		if e.ofMachines() {
			e.refuses(t, `without "network" the app would be in the host's`, "--network", "host")
			e.refuses(t, "is not of an app of this pod", "--pid", "container:web")
			e.refuses(t, "is a tap of another process", "--network", "container:web")
			return
		}
		r := e.run(t, []string{"--rm", "--network", "container:web", "--pid", "container:web"}, "sh", "-c", "wget -q -O - http://127.0.0.1/; grep -c httpd /proc/1/cmdline")
		if r.stdout != "served\n1\n" {
			t.Errorf("in the namespaces of the other: %+v", r)
		}
		if r := e.run(t, []string{"--rm", "--network", "host"}, "ip", "-o", "link"); !strings.Contains(r.stdout, "docker0") {
			t.Errorf("in the host's: %+v", r)
		}
	})
}

// Without systemd's driver the parent of a container is a path relative to containerd's own cgroup.
// requirements.md#C1
func TestTheParentOfAContainersCgroup(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		own := cgroupsOf(t, e.containerd.PID())
		if len(own) == 1 { // cgroup version 2 alone
			own[""] = filepath.Dir(own[""])
		} else {
			delete(own, "")
		}
		e.detached(t, "web", []string{"--cgroup-parent", "limited"}, "sleep", "1000")
		pid, err := strconv.Atoi(e.inspect(t, "web", "{{.State.Pid}}"))
		if err != nil {
			t.Fatal(err)
		}
		is, id := cgroupsOf(t, pid), e.inspect(t, "web", "{{.Id}}")
		for controllers, base := range own {
			if want := filepath.Join(base, "limited", id); is[controllers] != want {
				t.Errorf("of %q it is in %s, want %s", controllers, is[controllers], want)
			}
		}
		e.must(t, "rm", "--force", "web")
		for controllers, base := range own {
			name, _, _ := strings.Cut(strings.TrimPrefix(controllers, "name="), ",")
			if err := os.Remove(filepath.Join("/sys/fs/cgroup", name, base, "limited")); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	})
}

// cgroupsOf returns the cgroups of a process, by their controllers; "" is that of version 2.
func cgroupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		of[fields[1]] = fields[2]
	}
	return of
}

func TestAContainerAtWork(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		e.detached(t, "web", []string{"--memory", "64m"}, "sh", "-c", "echo out; echo err >&2; exec sleep 1000")
		wait.ObserveWithin(t, patience, "both streams are in the logs", func() (bool, string) {
			r := e.call(t, "", "logs", "web")
			return r.stdout == "out\n" && r.stderr == "err\n", fmt.Sprintf("%+v", r)
		})
		for command, want := range map[string]result{
			"echo in; exit 7": {"in\n", "", 7},
			"id -u; pwd":      {"0\n/\n", "", 0},
		} {
			if r := e.call(t, "", "exec", "web", "sh", "-c", command); r != want {
				t.Errorf("exec %s: %+v", command, r)
			}
		}
		if r := e.call(t, "given\n", "exec", "--interactive", "--user", "1000", "web", "sh", "-c", "id -u; cat"); r.stdout != "1000\ngiven\n" {
			t.Errorf("%+v", r)
		}
		for program, code := range map[string]int{"no-such-program": 127, "/etc/not-executable": 126, "/etc": 126} {
			if r := e.call(t, "", "exec", "web", program); r.code != code {
				t.Errorf("exec %s: %+v, want code %d", program, r, code)
			}
		}
		e.must(t, "exec", "--detach", "web", "sleep", "2000")
		// Docker looks for the pids of a machine among the processes of the host.
		if e.ofMachines() {
			t.Log("docker top is not tried")
		} else if top := e.must(t, "top", "web", "-o", "pid,args"); strings.Count(top, "\n") != 2 || !strings.Contains(top, "sleep 1000") || !strings.Contains(top, "sleep 2000") {
			t.Errorf("top shows\n%s", top)
		}
		if stats := e.must(t, "stats", "--no-stream", "--format", "{{.MemUsage}} {{.PIDs}}", "web"); !strings.HasSuffix(stats, "/ 64MiB 2") {
			t.Errorf("stats are %s", stats)
		}

		given := filepath.Join(t.TempDir(), "given")
		if err := os.WriteFile(given, []byte("given\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		e.must(t, "cp", given, "web:/tmp/given")
		e.must(t, "exec", "web", "sh", "-c", "sed s/given/taken/ /tmp/given >/tmp/taken")
		e.must(t, "cp", "web:/tmp/taken", given)
		if b, err := os.ReadFile(given); err != nil || string(b) != "taken\n" {
			t.Errorf("copied out: %q, %v", b, err)
		}

		e.must(t, "pause", "web")
		if s := e.inspect(t, "web", "{{.State.Status}}"); s != "paused" {
			t.Errorf("it is %s", s)
		}
		e.must(t, "unpause", "web")
		limits := []string{"update", "--memory", "32m", "--memory-swap", "64m", "--pids-limit", "55", "--cpu-shares", "300", "--cpus", "0.5"}
		if !e.ofMachines() { // its processors come and go
			limits = append(limits, "--cpuset-cpus", "0")
		}
		e.must(t, append(limits, "web")...)
		if r := e.call(t, "", "update", "--cpuset-cpus", "4000", "web"); r.code == 0 {
			t.Error("it was given a processor that is not there")
		}
		if stats := e.must(t, "stats", "--no-stream", "--format", "{{.MemUsage}}", "web"); !strings.HasSuffix(stats, "/ 32MiB") {
			t.Errorf("stats are %s", stats)
		}
		before := e.inspect(t, "web", "{{.State.Pid}}")
		e.must(t, "restart", "--time", "1", "web")
		if after := e.inspect(t, "web", "{{.State.Pid}}"); after == before {
			t.Errorf("it was not restarted: %s", after)
		}
		e.must(t, "kill", "--signal", "KILL", "web")
		if code := e.must(t, "wait", "web"); code != "137" {
			t.Errorf("it ended with %s", code)
		}
		e.must(t, "start", "web")
		e.must(t, "stop", "--time", "1", "web")
		e.must(t, "rename", "web", "other")
		if s := e.inspect(t, "other", "{{.State.Status}} {{.State.ExitCode}}"); s != "exited 137" {
			t.Errorf("it is %s", s)
		}
	})
}

// A health check is an exec. If it takes too long, it is killed.
func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		check := func(words string) []string {
			return []string{"--health-cmd", words, "--health-interval", "1s", "--health-timeout", "2s", "--health-retries", "2"}
		}
		e.detached(t, "well", check("test -e /tmp/well"), "sleep", "1000")
		e.detached(t, "slow", check("sleep 1234"), "sleep", "1000")
		for _, name := range []string{"well", "slow"} {
			wait.ObserveWithin(t, patience, name+" is unhealthy", func() (bool, string) {
				s := e.inspect(t, name, "{{.State.Health.Status}}")
				return s == "unhealthy", s
			})
		}
		e.must(t, "exec", "well", "touch", "/tmp/well")
		wait.ObserveWithin(t, patience, "it is healthy", func() (bool, string) {
			s := e.inspect(t, "well", "{{.State.Health.Status}}")
			return s == "healthy", s
		})
		ps := []string{"top", "slow", "-o", "pid,args"}
		if e.ofMachines() {
			ps = []string{"exec", "slow", "ps", "-o", "pid,args"}
		}
		if top := e.must(t, ps...); strings.Count(top, "sleep 1234") > 2 { // a shell and its child
			t.Errorf("checks go on:\n%s", top)
		}
	})
}

func TestRestartPoliciesAndOOM(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		e.detached(t, "fails", []string{"--restart", "on-failure:2"}, "testprog", "exit", "3")
		e.detached(t, "always", []string{"--restart", "always"}, "sleep", "0.2")
		e.detached(t, "stopped", []string{"--restart", "unless-stopped"}, "sleep", "1000")
		e.detached(t, "hungry", []string{"--memory", "32m"}, "testprog", "allocate", "64")
		for name, want := range map[string]string{"fails": "2 exited 3 false", "hungry": "0 exited 137 true"} {
			wait.ObserveWithin(t, patience, name+" is "+want, func() (bool, string) {
				s := e.inspect(t, name, "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}")
				return s == want, s
			})
		}
		wait.ObserveWithin(t, patience, "it is started again and again", func() (bool, string) {
			s := e.inspect(t, "always", "{{.RestartCount}}")
			return s > "2", s
		})
		e.must(t, "stop", "--time", "1", "stopped")
		if s := e.inspect(t, "stopped", "{{.RestartCount}} {{.State.Status}}"); s != "0 exited" {
			t.Errorf("what was stopped is %s", s)
		}
	})
}

// With live-restore containers go on without their daemon, and the daemon notices later if one
// has ended meanwhile.
func TestContainersOutliveTheDaemon(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		e.detached(t, "stays", nil, "sh", "-c", "while :; do echo tick; sleep 0.1; done")
		e.detached(t, "ends", nil, "sh", "-c", "until [ -e /tmp/end ]; do sleep 0.1; done; exit 42")
		pid := e.inspect(t, "stays", "{{.State.Pid}}")
		e.must(t, "exec", "--detach", "ends", "sh", "-c", "sleep 1; touch /tmp/end")
		e.down(syscall.SIGKILL)
		e.up(t)
		if s := e.inspect(t, "stays", "{{.State.Status}} {{.State.Pid}}"); s != "running "+pid {
			t.Errorf("it is %s, want running %s", s, pid)
		}
		wait.ObserveWithin(t, patience, "the exit is known", func() (bool, string) {
			s := e.inspect(t, "ends", "{{.State.Status}} {{.State.ExitCode}}")
			return s == "exited 42", s
		})
		ticks := strings.Count(e.must(t, "logs", "stays"), "tick")
		wait.ObserveWithin(t, patience, "its output is still read", func() (bool, string) {
			n := strings.Count(e.must(t, "logs", "stays"), "tick")
			return n > ticks+5, fmt.Sprint(n)
		})
		e.must(t, "exec", "stays", "true")
		e.must(t, "stop", "--time", "1", "stays")
	})
}

// The commands of docs/clients.md are executed as they stand there.
func TestTheCommandsOfTheDocument(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		e.must(t, "tag", image.BusyboxName, "busybox")
		n := 0
		for line := range strings.Lines(string(text)) {
			command, isDocker := strings.CutPrefix(line, "docker ")
			if !isDocker {
				continue
			}
			n++
			if r := e.call(t, "", strings.Fields(command)...); r != (result{"hello\n", "", 0}) {
				t.Errorf("%s: %+v", strings.TrimSpace(line), r)
			}
		}
		if n == 0 {
			t.Error("the document has no command of docker")
		}
	})
}
