package proc

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// lasting has the ids of threads that must not end before this process: the kernel takes the end
// of a thread for that of the parent of the children which the thread has started.
var lasting sync.Map

// OnThread calls f on a thread that no other goroutine gets, and that ends with f. So f may
// change what the kernel keeps for each thread, such as namespaces. It is never the main
// thread, because /proc/self has the namespaces of that one.
//
// The thread takes no signals of the process. The kernel gives a signal to one thread, and the process
// would not see it, nor any further SIGCHLD, while that thread is blocked in a call of f.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked where f is called: no other goroutine gets that thread
		if _, lasts := lasting.Load(unix.Gettid()); lasts || unix.Gettid() == unix.Getpid() {
			// This goroutine keeps the thread, so f is called on another one.
			defer runtime.UnlockOSThread()
			done <- OnThread(f)
			return
		}
		if err := blockSignals(); err != nil {
			done <- fmt.Errorf("block the signals of a thread: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// blockSignals leaves this thread the signals that are not for the process as a whole: those of its own
// faults, and that by which Go's scheduler interrupts a thread.
func blockSignals() error {
	var blocked unix.Sigset_t
	for i := range blocked.Val {
		blocked.Val[i] = ^uint64(0)
	}
	for _, s := range []unix.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGURG} {
		blocked.Val[0] &^= 1 << (s - 1)
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &blocked, nil)
}
