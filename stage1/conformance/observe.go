package conformance

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// observe answers questions about the process, as its program sees it. A question is the
// name of an answerer and an argument. If the kernel refuses, the answer is the name of the
// kernel's error.
func observe(questions []string) map[string]string {
	runtime.LockOSThread() // some answers are about a thread
	answerers := map[string]func(string) (string, error){
		"status":        func(name string) (string, error) { return fieldOf("/proc/self/status", name+":") },
		"limits":        func(name string) (string, error) { return fieldOf("/proc/self/limits", name) },
		"file":          content,
		"list":          list,
		"stat":          stat,
		"create":        create,
		"mount":         mountAt,
		"namespace":     func(name string) (string, error) { return os.Readlink("/proc/self/ns/" + name) },
		"scheduler":     scheduler,
		"ioprio":        ioPriority,
		"personality":   personality,
		"memory-policy": memoryPolicy,
		"call":          call,
		"fresh":         fresh,
		"open":          open,
		"children":      children,
		"listen":        listen,
		"dial":          dial,
		"sees":          sees,
	}
	answers := map[string]string{}
	for _, q := range questions {
		kind, argument, _ := strings.Cut(q, " ")
		answer, err := answerers[kind](argument)
		if err != nil {
			answer = kernelError(err)
		}
		answers[q] = answer
	}
	return answers
}

// kernelError returns the name of a kernel error, such as EROFS, or the text of any other
// error.
func kernelError(err error) string {
	for e := err; e != nil; {
		if errno, ok := e.(unix.Errno); ok {
			return unix.ErrnoName(errno)
		}
		wrapped, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = wrapped.Unwrap()
	}
	return err.Error()
}

// fieldOf returns the words after a name at the beginning of a line of a file.
func fieldOf(path, name string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), name); found {
			return strings.Join(strings.Fields(rest), " "), nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return "", fmt.Errorf("%s has no %s", path, name)
}

// content returns the words of a file.
func content(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.Join(strings.Fields(string(b)), " "), err
}

func list(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " "), err
}

func create(path string) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return "created", f.Close()
}

// open opens a file.
func open(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	return "opened", f.Close()
}

// children makes up to N children, and returns how many there were at the same time. The child of a
// process with threads may only make system calls, and not through the runtime.
func children(n string) (string, error) {
	most, err := strconv.Atoi(n)
	if err != nil {
		return "", err
	}
	pids := make([]uintptr, 0, most)
	for len(pids) < most {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			break
		}
		if pid == 0 {
			for {
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		unix.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
		unix.RawSyscall6(unix.SYS_WAIT4, pid, 0, 0, 0, 0, 0)
	}
	return strconv.Itoa(len(pids)), nil
}

// stat describes a file: type, device number, mode and owner, such as c 1:3 0620 4711:4712.
func stat(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	kind := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b", unix.S_IFIFO: "p", unix.S_IFDIR: "d", unix.S_IFREG: "f"}[st.Mode&unix.S_IFMT]
	return fmt.Sprintf("%s %d:%d %04o %d:%d", kind, unix.Major(st.Rdev), unix.Minor(st.Rdev), st.Mode&0o7777, st.Uid, st.Gid), nil
}

// mountAt returns the type, the options and the propagation of the last mount at a path, as
// words.
func mountAt(path string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	answer := "no mount"
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		dash := slices.Index(words, "-")
		if words[4] != path {
			continue
		}
		all := append([]string{words[dash+1]}, strings.Split(words[5], ",")...)
		for _, w := range words[6:dash] {
			kind, _, _ := strings.Cut(w, ":")
			all = append(all, kind)
		}
		answer = strings.Join(append(all, strings.Split(words[dash+3], ",")...), " ")
	}
	return answer, lines.Err()
}

// scheduler returns the policy, the nice value and the flags of the process.
func scheduler(string) (string, error) {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(a.Policy, a.Nice, a.Flags), nil
}

// ioPriority returns the class and the priority of the process.
func ioPriority(string) (string, error) {
	const ofProcess, classShift = 1, 13
	p, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, 0, 0)
	if errno != 0 {
		return "", errno
	}
	return fmt.Sprint(p>>classShift, p&(1<<classShift-1)), nil
}

func personality(string) (string, error) {
	const ask = 0xffffffff
	p, _, errno := unix.Syscall(unix.SYS_PERSONALITY, ask, 0, 0)
	if errno != 0 {
		return "", errno
	}
	return fmt.Sprintf("%#x", p), nil
}

// memoryPolicy returns the mode and the first nodes of the thread's memory policy, as bits.
func memoryPolicy(string) (string, error) {
	var mode int32
	var nodes [1024 / 64]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&nodes)), uintptr(len(nodes)*64), 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	return fmt.Sprintf("%#x %#x", mode, nodes[0]), nil
}

// call makes a system call: NAME ARGUMENT...
func call(text string) (string, error) {
	words := strings.Fields(text)
	var arguments [2]uintptr
	for i, w := range words[1:] {
		n, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			return "", err
		}
		arguments[i] = uintptr(n)
	}
	number := map[string]uintptr{"getpriority": unix.SYS_GETPRIORITY, "getsid": unix.SYS_GETSID, "getpgid": unix.SYS_GETPGID}[words[0]]
	if _, _, errno := unix.Syscall(number, arguments[0], arguments[1], 0); errno != 0 {
		return "", errno
	}
	return "done", nil
}

// touch makes an empty file.
func touch(path string) int {
	if _, err := create(filepath.Clean(path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
