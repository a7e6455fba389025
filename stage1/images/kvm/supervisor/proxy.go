package supervisor

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Proxy is a process of the host that stands for one of the machine: it does nothing but end
// when its supervisor does or says so, by closing the pipe that is descriptor 3. With a
// terminal, descriptor 4 is a pipe to which it writes a byte when the size has changed.
func Proxy() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	var st unix.Stat_t
	if unix.Fstat(4, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		sizes := make(chan os.Signal, 1)
		signal.Notify(sizes, unix.SIGWINCH)
		report := os.NewFile(4, "report")
		go func() {
			for range sizes {
				_, _ = report.Write([]byte{0})
			}
		}()
	}
	_, _ = os.NewFile(3, "release").Read(make([]byte, 1))
	return 0
}
