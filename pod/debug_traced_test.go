package pod

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tracedVariable has the pid of the process that this program traces, in place of running tests.
const tracedVariable = "TEST_TRACED"

// trace traces a process, and never waits for it.
func trace(text string) {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(text)
	if err == nil {
		err = unix.PtraceSeize(pid)
	}
	fmt.Println("tracing", err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// A container with CAP_SYS_PTRACE can trace a debug app. Until the tracer ends, the kernel hides the end of the app from
// its parent.
func TestADebugAppWhoseTracerHidesItsEndBlocksNobody(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 300")
	d, err := w.AddDebug("a")
	if err != nil {
		t.Fatal(err)
	}
	debug := d.(*DebugApp)
	if err := w.createDebug(debug, "sleep 300"); err != nil {
		t.Fatal(err)
	}
	pid, err := d.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tracer := exec.Command("/proc/self/exe")
	tracer.Env = append(os.Environ(), tracedVariable+"="+strconv.Itoa(pid))
	tracer.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	stdin, err := tracer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := tracer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.stage1.children.Expect()()
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, err := stdout.Read(said)
	if err != nil || string(said[:n]) != "tracing <nil>\n" {
		t.Fatalf("the tracer said %q, %v", said[:n], err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const want = ", which traces it, does not take notice"
	if _, err := d.Wait(w.soon()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("wait: %v", err)
	}
	if err := d.End(w.soon()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("end: %v", err)
	}
	stdin.Close()
	if err := tracer.Wait(); err != nil {
		t.Error(err)
	}
	w.mustKillAndDelete("a")
	w.mustLeaveNothing(debug)
}
