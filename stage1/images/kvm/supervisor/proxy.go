package supervisor

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Proxy is a process of the host that stands for one of the machine: it does nothing but kill itself
// when its supervisor ends or says so, by closing the pipe that is descriptor 3. Descriptor 5 is a detached
// mount, its root, or no directory. With a terminal, descriptor 6 is a pipe to which it writes a byte when the
// size has changed.
//
// It closes descriptor 4 when it has its root, and first writes the reason if it gets none.
func Proxy() int {
	begun := os.NewFile(4, "begun")
	if err := takeRoot(os.NewFile(5, "root")); err != nil {
		fmt.Fprint(begun, err)
		return 1
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	var st unix.Stat_t
	if unix.Fstat(6, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		sizes := make(chan os.Signal, 1)
		signal.Notify(sizes, unix.SIGWINCH)
		report := os.NewFile(6, "report")
		go func() {
			for range sizes {
				_, _ = report.Write([]byte{0})
			}
		}()
	}
	begun.Close()
	_, _ = os.NewFile(3, "release").Read(make([]byte, 1))
	// If the supervisor was killed, stage 0 inherits this process, and takes its end for that of the app.
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	return 1
}

// takeRoot makes a detached mount the root of the proxy's mount namespace, and takes all other mounts away.
// If the file is no directory, the proxy has an empty root.
//
// Clients use the root of a process that they take for the container's: nerdctl cp writes below
// /proc/PID/root. A change of the root alone would not be enough: links of the container lead out of
// it with "..".
func takeRoot(tree *os.File) error {
	defer tree.Close()
	info, err := tree.Stat()
	if err != nil {
		return fmt.Errorf("look at the root of a proxy: %w", err)
	}
	const place = "/proc" // any directory: the namespace is the proxy's
	if info.IsDir() {
		err = unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH)
	} else {
		err = unix.Mount("none", place, "tmpfs", unix.MS_RDONLY, "mode=555")
	}
	if err != nil {
		return fmt.Errorf("mount the root of a proxy: %w", err)
	}
	if err := os.Chdir(place); err != nil {
		return fmt.Errorf("enter the root of a proxy: %w", err)
	}
	// The old root is mounted on the new one, and then taken away. No mount that the host makes or
	// unmounts later is propagated, because the namespace was made with private mounts.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change to the root of a proxy: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root in the namespace of a proxy: %w", err)
	}
	return os.Chdir("/")
}
