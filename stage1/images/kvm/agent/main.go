package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// containerInit is the name of the first process of an app. The kernel calls the agent
// /init, too.
const containerInit = "init"

// becomesApp says that this is the first process of an app or exec. That of an app with a PID
// namespace is process 1, like the agent, but it has the socket to the supervisor and its plan
// as descriptors 3 and 4, and the kernel gives the agent only three.
var becomesApp bool

// Lock the main goroutine of a container's init to the first thread. Only this thread enters
// the app's cgroup, so it must also execute the app's program.
func init() {
	if filepath.Base(os.Args[0]) == containerInit {
		_, err := unix.FcntlInt(4, unix.F_GETFD, 0)
		becomesApp = err == nil
	}
	if becomesApp {
		runtime.LockOSThread()
	}
}

func main() {
	if becomesApp {
		container.Init()
	}
	err := work()
	if err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
	}
	powerOff()
}

// work is the life of the agent: the boot, and after the machine's sleep its pod. It returns when the host has closed the
// channel, or has asked for the end.
func work() error {
	port, err := boot()
	if err != nil {
		return err
	}
	if err := sleep(port); err != nil {
		return err
	}
	if err := join(); err != nil {
		return err
	}
	session, err := channel.Guest(port)
	if err != nil {
		return err
	}
	a, err := newAgent(session)
	if err != nil {
		return err
	}
	a.serve()
	return nil
}
