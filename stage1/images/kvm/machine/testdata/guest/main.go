// Command guest is the first process of the machines that tests boot. It does what a line on the
// channel says, and answers with a quoted line.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func main() {
	for _, fs := range []string{"devtmpfs /dev", "proc /proc", "sysfs /sys"} {
		words := strings.Fields(fs)
		must(os.MkdirAll(words[1], 0o755))
		must(unix.Mount(words[0], words[1], words[0], 0, ""))
	}
	must(load("order", ""))
	port, err := open("org.rkt.agent")
	must(err)
	fmt.Fprintln(port, strconv.Quote("hello"))
	lines := bufio.NewScanner(port)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		f := verbs[words[0]]
		answer, err := f(words[1:])
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintln(port, strconv.Quote(answer))
	}
	must(lines.Err())
}

func must(err error) {
	if err != nil {
		fmt.Println("guest:", err)
		os.Exit(1) // panics the kernel
	}
}

var verbs = map[string]func([]string) (string, error){
	"read": func(args []string) (string, error) {
		b, err := os.ReadFile(args[0])
		return string(b), err
	},
	"write": func(args []string) (string, error) {
		return "", os.WriteFile(args[0], []byte(args[1]), 0o644)
	},
	"heard": heard,
	"list": func(args []string) (string, error) {
		entries, err := os.ReadDir(args[0])
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " "), err
	},
	"mount": func(args []string) (string, error) {
		return "", unix.Mount(args[0], args[1], args[2], 0, "")
	},
	"sync":  func([]string) (string, error) { unix.Sync(); return "", nil },
	"mkdir": func(args []string) (string, error) { return "", os.MkdirAll(args[0], 0o755) },
	"load":  func(args []string) (string, error) { return "", load("later", args[0]) },
	"clock": func([]string) (string, error) { return strconv.FormatInt(time.Now().UnixNano(), 10), nil },
	"addresses": func([]string) (string, error) {
		interfaces, err := net.Interfaces()
		return fmt.Sprint(interfaces), err
	},
	"print": func(args []string) (string, error) { return "", os.WriteFile("/dev/console", []byte(args[0]), 0) },
	// The number of processors. Those that were added are offline at first.
	"cpus": func([]string) (string, error) { return strconv.Itoa(runtime.NumCPU()), nil },
	"exit": func([]string) (string, error) { os.Exit(1); return "", nil },
	"poweroff": func([]string) (string, error) {
		return "", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	},
}

// load loads the modules of the list order, or those of the line in the list later that ends in a
// module.
func load(list, module string) error {
	text, err := os.ReadFile("/modules/" + list)
	if err != nil {
		return err
	}
	files := strings.Fields(string(text))
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSpace(line), module+".ko") && module != "" {
			files = strings.Fields(line)
		}
	}
	for _, name := range files {
		f, err := os.Open("/modules/" + name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// open opens a port.
func open(port string) (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(name)) != port {
			continue
		}
		fd, err := unix.Open("/dev/"+filepath.Base(filepath.Dir(path)), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), port), channel.AwaitHost(fd)
	}
	return nil, fmt.Errorf("none of the ports %q is %s", names, port)
}

// heard returns the first line that comes by a port.
func heard(args []string) (string, error) {
	port, err := open(args[0])
	if err != nil {
		return "", err
	}
	defer port.Close()
	return bufio.NewReader(port).ReadString('\n')
}
