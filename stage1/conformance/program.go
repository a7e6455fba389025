package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// Program must be called first by the main function of a program that uses the kit, with
// os.Args and with the doors of the kit's configuration. It has four uses. In an app of the
// kit it runs the app's verb and exits. In the process that becomes the entrypoint of an
// immutable image, it executes that entrypoint. In a worker process of Run it runs checks.
// In place of an entrypoint (Show) it records the call and executes the entrypoint. In any
// other process it returns at once.
func Program(args []string, doors ...stage1.Door) {
	if len(args) == 2 && args[1] == workerVerb && os.Getenv(workerVariable) != "" {
		os.Exit(work(os.Stdin, os.Stdout, doors))
	}
	if len(args) > 0 && filepath.Base(args[0]) == recorderName {
		os.Exit(record(args))
	}
	if len(args) < 2 || !isProgram(args[0]) {
		return
	}
	os.Exit(act(args[1], args[2:]))
}

// act runs a verb and returns the exit code.
func act(verb string, args []string) int {
	switch verb {
	case "exit": // CODE
		return number(args, 0)
	case "say": // TEXT [TEXT]: to the standard output, and error
		fmt.Fprint(os.Stdout, args[0])
		if len(args) > 1 {
			fmt.Fprint(os.Stderr, args[1])
		}
		return 0
	case "echo": // [CODE]: copies the input until its end
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
		if len(args) == 0 {
			return 0
		}
		return number(args, 0)
	case "inspect":
		return report(inspect())
	case "wait":
		return wait()
	case "sleep": // SECONDS
		time.Sleep(time.Duration(number(args, 0)) * time.Second)
		return 0
	case "tick":
		return tick()
	case "eat": // MEGABYTES, and then waits
		return eat(number(args, 0))
	case "feed": // like eat, after a byte of input
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return 1
		}
		return eat(number(args, 0))
	case "observe": // QUESTION...
		return report(observe(args))
	case "linger": // QUESTION..., and then waits
		if code := report(observe(args)); code != 0 {
			return code
		}
		return wait()
	case "fresh": // FILESYSTEM: the child of the question fresh
		return mountFresh(args[0])
	case "touch": // the file that a variable names
		return touch(os.Getenv(touchVariable))
	case "resized":
		return resized()
	}
	fmt.Fprintf(os.Stderr, "%s: no such verb\n", verb)
	return 125
}

func number(args []string, n int) int {
	v, err := strconv.Atoi(args[n])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	return v
}

// workerVariable is set in a worker process of Run, so that an ordinary command line is not
// taken for a worker's.
const workerVariable = "RKT_STAGE1_VERIFY_WORKER"

// touchVariable names the variable with the file that the verb touch makes.
const touchVariable = "VERIFY_TOUCH"

// signalled is the exit code of a program that has received a signal and handled it.
const signalled = 40

// wait writes a line when it is ready for signals, and exits when one arrives.
func wait() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT)
	fmt.Println("waiting")
	sig, _ := (<-signals).(syscall.Signal)
	return signalled + int(sig)
}

// tick counts, and writes a line for each number.
func tick() int {
	for n := 0; ; n++ {
		fmt.Println(n)
		time.Sleep(10 * time.Millisecond)
	}
}

// eat allocates memory, writes a line and waits.
func eat(megabytes int) int {
	b, err := unix.Mmap(-1, 0, megabytes<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for at := 0; at < len(b); at += os.Getpagesize() {
		b[at] = 1
	}
	fmt.Println("eaten")
	time.Sleep(time.Hour)
	return 0
}

// resized writes a terminal's size, at first and after each change.
func resized() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	for {
		if code := report(inspect()); code != 0 {
			return code
		}
		<-signals
	}
}

// surroundings describes a process as its program sees it.
type surroundings struct {
	Args        []string
	Env         []string
	Cwd         string
	UID, GID    int
	Descriptors []int
	Directories []int // those of them that are directories
	Terminals   []int // those of 0, 1 and 2 that are terminals
	Controlling bool  // whether the terminal is the controlling one
	Rows, Cols  int
	Hostname    string
}

func inspect() surroundings {
	s := surroundings{Args: os.Args[1:], Env: os.Environ(), UID: os.Getuid(), GID: os.Getgid()}
	s.Cwd, _ = os.Getwd()
	s.Hostname, _ = os.Hostname()
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			s.Descriptors = append(s.Descriptors, fd)
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				s.Directories = append(s.Directories, fd)
			}
		}
	}
	for fd := range 3 {
		if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			s.Terminals = append(s.Terminals, fd)
			s.Rows, s.Cols = int(size.Row), int(size.Col)
		}
	}
	session, err := unix.IoctlGetInt(0, unix.TIOCGSID)
	own, _ := unix.Getsid(0)
	s.Controlling = err == nil && session == own
	return s
}

// report writes v as one line, which a check reads.
func report(v any) int {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return 1
	}
	return 0
}
