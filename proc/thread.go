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
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked where f is called: no other goroutine gets that thread
		if _, lasts := lasting.Load(unix.Gettid()); lasts || unix.Gettid() == unix.Getpid() {
			// This goroutine keeps the thread, so f is called on another one.
			defer runtime.UnlockOSThread()
			done <- OnThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}
