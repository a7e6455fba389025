package proc_test

import (
	"fmt"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestInheritedDescriptorsAreNotPassedOn(t *testing.T) {
	fd, err := unix.Dup(0) // as a descriptor that was inherited, it is open after an exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	open := func() bool { return exec.Command("test", "-e", fmt.Sprintf("/proc/self/fd/%d", fd)).Run() == nil }
	if !open() {
		t.Fatalf("descriptor %d was closed before", fd)
	}
	proc.SealDescriptors()
	if open() {
		t.Errorf("a program has descriptor %d", fd)
	}
}
