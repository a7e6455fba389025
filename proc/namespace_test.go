package proc

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestWhoIsTheFirstOfAPIDNamespace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for PID namespaces")
	}
	for flags, want := range map[uintptr]bool{0: false, syscall.CLONE_NEWPID: true} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := IsInit(cmd.Process.Pid); got != want {
			t.Errorf("flags %x: %t, want %t", flags, got, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if IsInit(cmd.Process.Pid) {
			t.Error("one that was reaped is the first of a namespace")
		}
	}
	if IsInit(os.Getpid()) {
		t.Error("this process has made no namespace")
	}
}
