package proc

import (
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
func OnThread(f func() error) error {
	return onThread(func() (asBefore bool, err error) { return false, f() })
}

// onThread is OnThread for a function that reports whether the thread is as it was before. Such
// a thread goes on.
func onThread(f func() (asBefore bool, err error)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		asBefore, err := true, error(nil)
		_, lasts := lasting.Load(unix.Gettid())
		if lasts || unix.Gettid() == unix.Getpid() {
			err = onThread(f) // on another thread, because this goroutine keeps this one meanwhile
		} else {
			asBefore, err = f()
		}
		if asBefore {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
