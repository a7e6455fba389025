// Command testprog is a static program that the suite runs inside containers. Each subcommand
// does or prints one thing that a test needs.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/escape"
)

func main() {
	if len(os.Args) < 2 {
		fail("a subcommand is needed")
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "exit":
		os.Exit(number(args, 0))
	case "inspect":
		inspect()
	case "sleep":
		time.Sleep(time.Duration(number(args, 0)) * time.Second)
	case "spin":
		for { //nolint:staticcheck // burning CPU is the purpose
		}
	case "ignore-term":
		ignoreTerm()
	case "signals":
		reportSignals()
	case "fork":
		fork(number(args, 0))
	case "forks":
		forks(number(args, 0), args[1], args[2])
	case "transfer":
		transfer(args[0], args[1], number(args, 2))
	case "background":
		background(number(args, 0))
	case "bytes":
		writeBytes(number(args, 0))
	case "count-stdin":
		countStdin()
	case "allocate":
		allocate(number(args, 0))
	case "both":
		both(args)
	case "winsize":
		winsize()
	case "winch":
		winch()
	case "open":
		tryOpen(args[0])
	case "logger":
		logger(args[0])
	case "keyring":
		keyring()
	case "echo-socket":
		echoSocket()
	case "session-keyring":
		id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		must(err)
		fmt.Println(id)
	case "securebits":
		bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
		must(err)
		fmt.Println(bits)
	case "iomux":
		ioMux(args[0], args[1], args[2] == "end", args[3:])
	case "ttymux":
		ttyMux(args[0], args[1])
	case "attach":
		attachMux(args[0], args[1:])
	case "trespass":
		trespass(number(args, 0))
	case "undumpable":
		undumpable()
	case "on-tty":
		onTTY(args[0], args[1:])
	case "keep-limits":
		keepLimits(args)
	case "escape":
		must(escape.Main(os.Stdout, args))
	case "hunt":
		hunt(args[0], args[1])
	case "reach":
		reach(args[0])
	case "reach-inside":
		reachInside(args[0], args[1])
	case "serve":
		serve(args[0], args[1])
	default:
		fail("unknown subcommand " + os.Args[1])
	}
}

// ignoreTerm prints a line when SIGTERM is ignored, and then waits for SIGKILL.
func ignoreTerm() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	forever()
}

// reportSignals prints the number of every signal that arrives, and exits after SIGTERM.
func reportSignals() {
	c := make(chan os.Signal, 64)
	signal.Notify(c)
	fmt.Println("ready")
	for s := range c {
		if s == syscall.SIGURG {
			continue // the Go runtime uses it for preemption
		}
		fmt.Println(int(s.(syscall.Signal)))
		if s == syscall.SIGTERM {
			return
		}
	}
}

// serve answers every connection to a port of 127.0.0.1 with a line.
func serve(port, text string) {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(err)
	for {
		c, err := l.Accept()
		must(err)
		fmt.Fprintln(c, text)
		must(c.Close())
	}
}

// fork starts n children that sleep, and sleeps.
func fork(n int) {
	for range n {
		must(exec.Command("/proc/self/exe", "sleep", "1000").Start())
	}
	fmt.Println("ready")
	forever()
}

// forks forks, executes a program and waits, n times, and prints the median of the times in
// milliseconds. With how "namespaces" each child is in new namespaces, as a container is.
func forks(n int, how, program string) {
	var took []float64
	attr := &os.ProcAttr{Sys: &syscall.SysProcAttr{}}
	if how == "namespaces" {
		attr.Sys.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	}
	for range n {
		begin := time.Now()
		p, err := os.StartProcess(program, []string{program}, attr)
		must(err)
		state, err := p.Wait()
		must(err)
		if !state.Success() {
			fail(state.String())
		}
		took = append(took, float64(time.Since(begin).Microseconds())/1000)
	}
	slices.Sort(took)
	fmt.Println(took[n/2])
}

// transfer reads or writes n bytes of a file, sends them to an address, or receives them, and prints the
// seconds. What was written to a file is on the disk then.
func transfer(how, name string, n int) {
	block := make([]byte, 64<<10)
	begin := time.Now()
	var stream io.ReadWriteCloser
	var err error
	switch how {
	case "read":
		stream, err = os.Open(name)
	case "write":
		stream, err = os.Create(name)
	case "send", "receive":
		stream, err = net.Dial("tcp", name)
	}
	must(err)
	do := stream.Read
	if how == "write" || how == "send" {
		do = stream.Write
	}
	for n > 0 {
		k, err := do(block[:min(n, len(block))])
		must(err)
		n -= k
	}
	if f, ok := stream.(*os.File); ok && how == "write" {
		must(f.Sync())
	}
	must(stream.Close())
	fmt.Println(time.Since(begin).Seconds())
}

// background starts a child that holds stdout for n seconds, and exits.
func background(n int) {
	c := exec.Command("/proc/self/exe", "sleep", strconv.Itoa(n))
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	must(c.Start())
	fmt.Println("left")
}

func writeBytes(n int) {
	w := bufio.NewWriterSize(os.Stdout, 1<<16)
	line := []byte(strings.Repeat("x", 63) + "\n")
	for n > 0 {
		k := min(n, len(line))
		if _, err := w.Write(line[:k]); err != nil {
			fail(err.Error())
		}
		n -= k
	}
	must(w.Flush())
}

func countStdin() {
	n, err := io.Copy(io.Discard, os.Stdin)
	must(err)
	fmt.Println(n)
}

// forever never returns. With an empty select the Go runtime would report a deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// allocate writes to n MiB of memory.
func allocate(n int) {
	var held [][]byte
	for range n {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	fmt.Println("allocated", len(held))
}

// both writes its two arguments to stdout and stderr.
func both(args []string) {
	fmt.Println(args[0])
	fmt.Fprintln(os.Stderr, args[1])
}

// tryOpen prints "opened" or the error of opening a file.
func tryOpen(path string) {
	f, err := os.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println("opened")
}

// logger is a binary:// logger: it writes a line with its environment to a file, and then
// copies the streams on descriptors 3 and 4 to it.
func logger(path string) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(err)
	fmt.Fprintf(out, "logger %s %s\n", os.Getenv("CONTAINER_NAMESPACE"), os.Getenv("CONTAINER_ID"))
	done := make(chan struct{})
	for fd, name := range map[uintptr]string{3: "stdout", 4: "stderr"} {
		go func() {
			s := bufio.NewScanner(os.NewFile(fd, name))
			for s.Scan() {
				fmt.Fprintf(out, "%s %s\n", name, s.Text())
			}
			done <- struct{}{}
		}()
	}
	must(os.NewFile(5, "ready").Close())
	<-done
	<-done
	must(out.Close())
}

// keyring requests the session keyring, which a default seccomp profile forbids.
func keyring() {
	const sessionKeyring = -3
	if _, err := unix.KeyctlGetKeyringID(sessionKeyring, false); errors.Is(err, unix.EPERM) {
		fmt.Println("forbidden")
		return
	}
	fmt.Println("allowed")
}

// echoSocket opens the socket that lets a process without capabilities ping.
func echoSocket() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		fmt.Println(err)
		return
	}
	must(unix.Close(fd))
	fmt.Println("opened")
}

func number(args []string, i int) int {
	if i >= len(args) {
		fail("a number is needed")
	}
	n, err := strconv.Atoi(args[i])
	must(err)
	return n
}

func printJSON(v any) {
	e := json.NewEncoder(os.Stdout)
	must(e.Encode(v))
}

func must(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "testprog:", text)
	os.Exit(125)
}
