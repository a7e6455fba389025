// Package strace counts the system calls of programs. strace writes one file for each thread;
// this package reads them while the programs run.
package strace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Command returns the words of a command line that traces a program and its children. The
// arguments of the program follow. The program keeps its parent and its pid; the tracer is a
// daemon, which ends after the last of the traced processes. dir must exist.
func Command(dir string) []string {
	return []string{"strace", "-DDD", "-ff", "-q", "-y", "-s", "512", "--pidns-translation",
		"-e", "signal=none", "-o", filepath.Join(dir, prefix), "--"}
}

// prefix is the beginning of the names of strace's files. The rest is a dot and a thread id.
const prefix = "thread"

// Call is a system call that has returned.
type Call struct {
	Name string
	Args string
	// Result is the text after the equals sign. Paths of descriptors are within <>.
	Result string
	// Program is what the process has executed last: the base name of its path, and its last
	// argument. For a process that has executed nothing it is "child of" and the program of its
	// nearest ancestor that has. For a thread that has joined namespaces it is "thread in a
	// container of" the program.
	Program string
}

// Failed reports whether the call has returned an error.
func (c Call) Failed() bool { return strings.HasPrefix(c.Result, "-1 ") }

func (c Call) String() string {
	return fmt.Sprintf("%s: %s(%s) = %s", c.Program, c.Name, c.Args, c.Result)
}

// On reports whether the call names a file below a directory, by path or by descriptor. Strings
// within a string that is read or written do not count.
func (c Call) On(dir string) bool {
	return strings.Contains(strings.ReplaceAll(c.Args, `\"`, ""), `"`+dir) || strings.Contains(c.Args, "<"+dir) || strings.Contains(c.Result, "<"+dir)
}

// Trace reads the files of a Command. It is not safe for concurrent use.
type Trace struct {
	dir      string
	read     map[int]int    // bytes that were read of each thread's file
	process  map[int]int    // the process of each thread
	parent   map[int]int    // of each process
	programs map[int]string // of each process that has executed one
	joined   map[int]bool   // threads that have joined namespaces, which their process has not
}

// Open returns a Trace of the files in a directory, from their beginning.
func Open(dir string) *Trace {
	return &Trace{dir: dir, read: map[int]int{}, process: map[int]int{}, parent: map[int]int{}, programs: map[int]string{}, joined: map[int]bool{}}
}

// Next returns the calls that have returned since the last Next, in the order of time for each
// thread. A call that had not returned by then is left out.
func (t *Trace) Next() ([]Call, error) {
	files, err := filepath.Glob(filepath.Join(t.dir, prefix+".*"))
	if err != nil {
		return nil, err
	}
	byThread := map[int][]Call{}
	for _, file := range files {
		thread, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(file), prefix+"."))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		end := bytes.LastIndexByte(text, '\n') + 1
		for line := range strings.Lines(string(text[min(t.read[thread], end):end])) {
			if c, ok := parse(line); ok {
				byThread[thread] = append(byThread[thread], c)
			}
		}
		t.read[thread] = end
	}
	for thread, calls := range byThread {
		t.learn(thread, calls)
	}
	var all []Call
	for thread, calls := range byThread {
		process := t.processOf(thread)
		program := t.programOf(process)
		if _, ok := t.programs[process]; !ok {
			program = "child of " + program
		}
		for _, c := range calls {
			if c.Name == "setns" && thread != process && !c.Failed() {
				t.joined[thread] = true
			}
			c.Program = program
			if t.joined[thread] {
				c.Program = "thread in a container of " + program
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// learn finds out which threads belong to which process, and which programs these execute.
func (t *Trace) learn(thread int, calls []Call) {
	for _, c := range calls {
		switch {
		case c.Failed():
		case c.Name == "execve" || c.Name == "execveat":
			t.programs[thread] = programName(c.Args)
		case c.Name == "clone" || c.Name == "clone3" || c.Name == "fork" || c.Name == "vfork":
			child, ok := childOf(c.Result)
			switch {
			case !ok:
			case strings.Contains(c.Args, "CLONE_THREAD"):
				t.process[child] = thread
			default:
				t.parent[child] = thread
			}
		}
	}
}

func (t *Trace) processOf(thread int) int {
	for range len(t.process) {
		maker, ok := t.process[thread]
		if !ok {
			break
		}
		thread = maker
	}
	return thread
}

func (t *Trace) programOf(process int) string {
	for range len(t.parent) + 1 {
		if name, ok := t.programs[process]; ok {
			return name
		}
		process = t.processOf(t.parent[process])
	}
	return "unknown"
}

var (
	aCall      = regexp.MustCompile(`^([a-z_0-9]+)\((.*)\) += (.*)\n$`)
	aString    = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	workDir    = regexp.MustCompile(`AT_FDCWD<[^>]*>, "/`) // not used for an absolute path
	translated = regexp.MustCompile(`/\* ([0-9]+) in strace's PID NS \*/`)
)

// parse reads a line of strace. It returns false for lines of another kind.
func parse(line string) (Call, bool) {
	m := aCall.FindStringSubmatch(line)
	if m == nil {
		return Call{}, false
	}
	return Call{Name: m[1], Args: workDir.ReplaceAllString(m[2], `AT_FDCWD, "/`), Result: m[3]}, true
}

// childOf reads the result of a clone. Inside a PID namespace strace adds its own number.
func childOf(result string) (int, bool) {
	if m := translated.FindStringSubmatch(result); m != nil {
		result = m[1]
	}
	pid, err := strconv.Atoi(strings.TrimSpace(result))
	return pid, err == nil
}

// programName returns the base name of the program, and its last argument unless that is the
// program's path again.
func programName(args string) string {
	words := aString.FindAllStringSubmatch(args, -1)
	if len(words) == 0 {
		return "unknown"
	}
	name, last := filepath.Base(words[0][1]), words[len(words)-1][1]
	if len(words) > 2 {
		name += " " + last
	}
	return name
}

// Counts has the calls of an operation that do not depend on the scheduler.
type Counts struct {
	// Execs, Made, Renamed and Removed are calls on files below dir that were successful: of
	// execve; of those that make a file or directory, or may make one; of those that rename and
	// remove one.
	Execs, Made, Renamed, Removed []Call
	// Cgroup are the calls on files and directories of cgroups, without those that have failed
	// to remove one, which depends on time.
	Cgroup []Call
	// Files are all calls on files and directories below dir.
	Files []Call
	// All is the number of calls, without those by which Go's runtime schedules.
	All int
}

// scheduling are the calls by which threads of a Go program wait for each other and for timers.
var scheduling = []string{"futex", "nanosleep", "clock_nanosleep", "epoll_pwait", "sched_yield", "tgkill", "getpid", "rt_sigreturn", "restart_syscall"}

// Count sorts calls. dir is the directory of everything that the programs make.
func Count(calls []Call, dir string) Counts {
	var n Counts
	for _, c := range calls {
		if !slices.Contains(scheduling, c.Name) {
			n.All++
		}
		cgroup, below := c.On("/sys/fs/cgroup"), c.On(dir)
		switch {
		case strings.HasPrefix(c.Name, "exec"):
			if below && !c.Failed() {
				n.Execs = append(n.Execs, c)
			}
			continue
		case cgroup && !(c.removes() && c.Failed()):
			n.Cgroup = append(n.Cgroup, c)
			continue
		case !cgroup && below:
			n.Files = append(n.Files, c)
		default:
			continue
		}
		switch {
		case c.Failed():
		case c.makes():
			n.Made = append(n.Made, c)
		case strings.HasPrefix(c.Name, "rename"):
			n.Renamed = append(n.Renamed, c)
		case c.removes():
			n.Removed = append(n.Removed, c)
		}
	}
	return n
}

func (c Call) makes() bool {
	switch c.Name {
	case "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat", "creat":
		return true
	}
	return strings.HasPrefix(c.Name, "open") && strings.Contains(c.Args, "O_CREAT")
}

func (c Call) removes() bool { return c.Name == "unlinkat" || c.Name == "unlink" || c.Name == "rmdir" }
