package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hunter attacks every process of its PID namespace that has not yet executed its program. Such
// a process belongs to the runtime, and may have capabilities, descriptors and files that no
// container may have.
type hunter struct {
	program  string // the name of every program that a test starts, as in /proc/PID/comm
	file     string // on the host, readable by every user
	dir      string // on the host, writable by every user
	quitting chan os.Signal

	mu  sync.Mutex
	met map[int]bool // processes that were seen before they executed their program
	won map[string]bool
}

// hunt attacks until SIGTERM. It prints "ready", "meets" when it first meets a process before its
// program, a line for each kind of attack that succeeds, and at the end the number of processes
// that it met before their programs. The tests start no other program than this one.
func hunt(file, dir string) {
	own, err := os.ReadFile("/proc/self/comm")
	must(err)
	h := &hunter{
		program: string(own), file: file, dir: dir, quitting: make(chan os.Signal, 1),
		met: map[int]bool{}, won: map[string]bool{},
	}
	signal.Notify(h.quitting, syscall.SIGTERM)
	quit := make(chan struct{})
	var attackers sync.WaitGroup
	for _, attack := range []func(pid int){h.open, h.seize} {
		attackers.Go(func() {
			runtime.LockOSThread() // only the tracing thread can use ptrace(2)
			h.repeat(attack, quit)
		})
	}
	fmt.Println("ready")
	<-h.quitting
	close(quit)
	attackers.Wait()
	fmt.Println("met", len(h.met))
}

// repeat attacks the present processes until quit is closed.
func (h *hunter) repeat(attack func(pid int), quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		default:
		}
		proc, err := os.Open("/proc")
		must(err)
		names, err := proc.Readdirnames(-1)
		proc.Close()
		must(err)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err == nil && pid != os.Getpid() && h.isRuntimes(pid) {
				h.meet(pid)
				attack(pid)
			}
		}
	}
}

// isRuntimes reports whether a process has not executed its program yet. A process that has
// executed its program never becomes the runtime's again. So if isRuntimes is true after an
// attack, the process was the runtime's during the attack. isRuntimes reads a file that
// every user may read. The kernel changes the name before it lets any process trace the new program.
func (h *hunter) isRuntimes(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && string(name) != h.program
}

func (h *hunter) meet(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.met) == 0 {
		fmt.Println("meets")
	}
	h.met[pid] = true
}

// win prints a successful attack, once for each kind of attack.
func (h *hunter) win(kind, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.won[kind] {
		h.won[kind] = true
		fmt.Println("won", kind, what)
	}
}

// open tries to open the files of a process in procfs.
func (h *hunter) open(pid int) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	if f, err := os.OpenFile(dir+"mem", os.O_RDWR, 0); err == nil {
		h.winOver(pid, "mem", "its memory")
		f.Close()
	}
	if f, err := os.Open(dir + "environ"); err == nil {
		h.winOver(pid, "environ", "its environment")
		f.Close()
	}
	if exe, err := os.Readlink(dir + "exe"); err == nil {
		h.winOver(pid, "exe", exe)
	}
	for fd := range 16 {
		if to, err := os.Readlink(dir + "fd/" + strconv.Itoa(fd)); err == nil {
			h.winOver(pid, "fd", strconv.Itoa(fd)+", "+to)
		}
	}
	if b, err := os.ReadFile(dir + "root" + h.file); err == nil {
		h.win("read", "a file of the host: "+strings.TrimSpace(string(b)))
	}
	name := filepath.Join(dir+"root"+h.dir, fmt.Sprint("hunted-", pid))
	if f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		h.win("create", name)
		f.Close()
	}
}

// winOver is win if the process is still the runtime's.
func (h *hunter) winOver(pid int, kind, what string) {
	if h.isRuntimes(pid) {
		h.win(kind, what)
	}
}

// seize traces a process, stops it, examines it, and detaches.
func (h *hunter) seize(pid int) {
	if unix.PtraceSeize(pid) != nil {
		return
	}
	if unix.PtraceInterrupt(pid) == nil {
		var ws unix.WaitStatus
		_, _ = unix.Wait4(pid, &ws, unix.WALL, nil)
	}
	if h.isRuntimes(pid) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		var facts []string
		for line := range strings.SplitSeq(string(status), "\n") {
			if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "Seccomp:") {
				facts = append(facts, strings.ReplaceAll(line, "\t", ""))
			}
		}
		h.win("seize", strings.Join(facts, " "))
	}
	_ = unix.PtraceDetach(pid)
}
