package oci

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// look calls the script's function executed for a process, after other commands of a shell, and returns
// what they say.
func look(t *testing.T, pid int, before string) string {
	t.Helper()
	lib, err := filepath.Abs("rootfs/lib.sh")
	must(t, err)
	sh := exec.Command("sh", "-c", fmt.Sprintf(`. %s; %s
executed %d && echo executed || echo not executed`, lib, before, pid))
	sh.Env = append(os.Environ(), "RKT_STAGE1_REQUEST=/dev/null", "RKT_ERROR_FD=2")
	sh.Stderr = os.Stderr
	out, err := sh.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// forked starts a process that has executed nothing, has the name of runc's, reads a line, and does what the script says. Its
// parent does not reap it.
func forked(t *testing.T, script string) (pid int, line *os.File) {
	t.Helper()
	r, w := pipe(t)
	parent := exec.Command("bash", "-c", `(printf "runc:[2:INIT]" >/proc/$BASHPID/comm; read line; `+script+`) <&3 & echo $!; exec 3<&-; exec sleep 1000`)
	parent.ExtraFiles = []*os.File{r}
	stdout, err := parent.StdoutPipe()
	must(t, err)
	release := children.Expect()
	t.Cleanup(release)
	must(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill(); _ = parent.Wait() })
	_, err = fmt.Fscan(stdout, &pid)
	must(t, err)
	wait.Until(t, "the parent is a program that reaps nothing", func() bool {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent.Process.Pid))
		return err == nil && string(comm) == "sleep\n"
	})
	return pid, w
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ")
	return after[:min(1, len(after))]
}

func TestAProcessThatHasEndedHasExecutedItsProgramOrNot(t *testing.T) {
	for want, script := range map[string]string{"executed": "exec true", "not executed": "exit 1"} {
		t.Run(want, func(t *testing.T) {
			pid, line := forked(t, script)
			line.Close()
			wait.Until(t, "the end of the process", func() bool { return state(pid) == "Z" })
			if got := look(t, pid, ""); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// While a slow file system holds the exec up, the script must not take a processor for itself.
func TestTheScriptSleepsWhileItWaitsForAnExec(t *testing.T) {
	pid, line := forked(t, "exec sleep 1000")
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	// The process may go on when the script sleeps for the first time.
	got := look(t, pid, fmt.Sprintf(`sleep() { echo sleeps; echo >/proc/%d/fd/%d; command sleep "$@"; }`, os.Getpid(), line.Fd()))
	if !strings.HasPrefix(got, "sleeps\n") || !strings.HasSuffix(got, "\nexecuted") {
		t.Errorf("got %q", got)
	}
}

// liars are names of programs that are names of processes of OCI runtimes.
var liars = []string{"runc:[2:INIT]", "crun"}

// An app may call its program as an OCI runtime calls its own process.
func TestAProgramWithTheNameOfTheRuntimesProcessStarts(t *testing.T) {
	p := startPod(t)
	for _, name := range liars {
		path := filepath.Join(p.root, "bin", name)
		must(t, os.WriteFile(path, []byte("#!/bin/busybox sh\nbusybox sleep 1000 & wait\n"), 0o755))
		t.Cleanup(func() { _ = os.Remove(path) })
		began := time.Now()
		a := p.app("web", nil, "/bin/"+name).start()
		q := a.enter("e", func(s *specs.Process) { s.Args = []string{"/bin/" + name} }, nil)
		for _, pid := range []int{a.PID, q.PID} {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(comm) != name+"\n" {
				t.Errorf("process %d is called %q (%v), want %s", pid, comm, err, name)
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: start and exec took %s", name, took)
		}
		p.expect(0, abi.AppStop, "web")
		a.ends(t, 137)
		q.ends(t, 137)
		p.expect(0, abi.AppRm, "web")
		must(t, a.group.Remove(p.patience))
	}
}
