package supervisor

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openNetwork opens the network namespace of an app. That of the host is none for a machine.
func openNetwork(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("linux.namespaces: %w", err)
	}
	theirs, err := f.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat("/proc/self/ns/net"); err == nil && os.SameFile(ours, theirs) {
			err = Unsupported("linux.namespaces: %s is the host's network, which a machine cannot reach", path)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// inNetwork calls f on a thread that is in a network namespace, or in the host's if it is nil.
// A process that f starts is there, too. The thread ends after that.
func inNetwork(network *os.File, f func(), err *error) {
	if network == nil {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if *err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); *err == nil {
			f()
		}
	}()
	<-done
}
