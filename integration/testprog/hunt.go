package main

import (
	"bytes"
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

// hunter attacks every process of its PID namespace that has not executed its program
// yet: such a process is the runtime's own, and may hold capabilities, descriptors and
// files that no container is to have.
type hunter struct {
	mark     string // is among the arguments of every program that a test starts
	file     string // of the host, readable by everybody
	dir      string // of the host, writable by everybody
	quitting chan os.Signal

	mu  sync.Mutex
	met map[int]bool // processes that were seen before their program
	won map[string]bool
}

// hunt attacks until SIGTERM comes. It prints "ready", a line for each kind of attack
// that succeeds, and at the end how many processes it met before their programs.
func hunt(mark, file, dir string) {
	h := &hunter{
		mark: mark, file: file, dir: dir, quitting: make(chan os.Signal, 1),
		met: map[int]bool{}, won: map[string]bool{},
	}
	signal.Notify(h.quitting, syscall.SIGTERM)
	quit := make(chan struct{})
	var attackers sync.WaitGroup
	for _, attack := range []func(pid int){h.open, h.seize} {
		attackers.Go(func() {
			runtime.LockOSThread() // a tracer is a thread
			h.repeat(attack, quit)
		})
	}
	fmt.Println("ready")
	<-h.quitting
	close(quit)
	attackers.Wait()
	fmt.Println("met", len(h.met))
}

// repeat attacks what there is until quit is closed.
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

// isRuntimes reports whether a process has not executed its program yet. A program is
// never exchanged for the runtime again, so a process for which this is true after an
// attack was the runtime's during the attack. Everybody may read what it looks at.
func (h *hunter) isRuntimes(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(line) > 0 && !bytes.Contains(line, []byte(h.mark)) // a zombie has none
}

func (h *hunter) meet(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met[pid] = true
}

// win prints what has succeeded, once for each kind.
func (h *hunter) win(kind, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.won[kind] {
		h.won[kind] = true
		fmt.Println("won", kind, what)
	}
}

// open opens what procfs has of a process.
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

// winOver is win if the process is the runtime's still.
func (h *hunter) winOver(pid int, kind, what string) {
	if h.isRuntimes(pid) {
		h.win(kind, what)
	}
}

// seize traces a process, stops it, looks at it, and lets it go.
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
