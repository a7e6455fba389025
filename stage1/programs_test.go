package stage1

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// programs are what the test binary does when it is executed with their names.
var programs = map[string]func([]string) error{
	"test-console": consoleProgram,
}

// consoleProgram sends a message to a console socket: the master of a new pty of
// 132 by 50, or a message that must be refused.
func consoleProgram(args []string) error {
	socket, what := args[0], args[1]
	var fds []int
	switch what {
	case "pty":
		master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132}); err != nil {
			return err
		}
		fds = []int{int(master.Fd())}
	case "file":
		f, err := os.Open("/dev/null")
		if err != nil {
			return err
		}
		defer f.Close()
		fds = []int{int(f.Fd())}
	case "two":
		fds = []int{0, 1}
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if what == "silence" {
		time.Sleep(time.Hour)
	}
	_, _, err = conn.WriteMsgUnix([]byte("tty"), unix.UnixRights(fds...), nil)
	return err
}
