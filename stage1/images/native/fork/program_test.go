package fork

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// executes begins p with a Program that writes to the result, and returns what it has written
// and its exit status.
func executes(t *testing.T, p *Process, change func(*Program)) (output string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	q := *p
	q.Exe, q.Args = nil, nil
	q.Files = []*os.File{p.Files[1], w, w}
	q.Program = &Program{Dir: "/", Paths: []string{busybox}, Umask: 0o022, Capabilities: Capabilities{Bounding: ^uint64(0), Permitted: ^uint64(0), Effective: ^uint64(0)}}
	change(q.Program)
	b, err := Begin(context.Background(), &q)
	if err != nil {
		return "", err
	}
	defer b.Close()
	master, err := b.Executed()
	if master != nil {
		t.Error("a process without a terminal has sent one")
	}
	w.Close()
	text, readErr := io.ReadAll(r)
	ws := reap(b.PID)
	if err = errors.Join(err, readErr); err == nil && ws.ExitStatus() != 0 {
		err = fmt.Errorf("exit status %d", ws.ExitStatus())
	}
	return string(text), err
}

func script(g *Program, text string) { g.Args = []string{"sh", "-c", text} }

func TestAProgramGetsItsIdentityAndLimits(t *testing.T) {
	p := sleeper(t)
	dir := t.TempDir()
	output, err := executes(t, p, func(g *Program) {
		script(g, `umask; pwd; id -u; id -g; id -G; ulimit -n; ulimit -Hn; grep -E "^(Cap|NoNew|Seccomp:)" /proc/self/status; echo $A-$B-$HOME; ls /proc/self/fd | wc -l; stat -Lc %u /dev/stdout`)
		g.Env = []string{"A=1", "B=two words"}
		g.Home = true
		g.Dir, g.Umask, g.NoNewPrivileges = dir, 0o27, true
		g.UID, g.GID, g.Groups = 0, 7, []uint32{9, 8}
		g.Limits = []Limit{{unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 100, Max: 200}}}
		const net, sys, chown = 1 << unix.CAP_NET_RAW, 1 << unix.CAP_SYS_ADMIN, 1 << unix.CAP_CHOWN
		g.Capabilities = Capabilities{Bounding: net | sys, Permitted: net | chown, Effective: chown, Inheritable: net, Ambient: net | sys}
		allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
		for _, f := range allow {
			g.Filter = append(g.Filter, byte(f.Code), byte(f.Code>>8), f.Jt, f.Jf, byte(f.K), byte(f.K>>8), byte(f.K>>16), byte(f.K>>24))
		}
	})
	if err != nil {
		t.Fatal(err, output)
	}
	want := `0027
` + dir + `
0
7
7 8 9
100
200
CapInh:	0000000000002000
CapPrm:	0000000000002000
CapEff:	0000000000002000
CapBnd:	0000000000202000
CapAmb:	0000000000002000
NoNewPrivs:	1
Seccomp:	2
1-two words-/root
4
0
`
	if output != want {
		t.Errorf("it wrote\n%s, want\n%s", output, want)
	}
}

// A process opens the files of its cgroups itself. Here they are ordinary files. The user of the
// Program and root of the user namespace have no right to open them.
func TestAProcessOpensTheFilesOfItsCgroups(t *testing.T) {
	p := sleeper(t)
	tasks := func() (paths []string) {
		for _, name := range []string{"a", "b"} {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		return paths
	}
	expect := func(paths []string, want ...string) {
		t.Helper()
		for i, path := range paths {
			if text, err := os.ReadFile(path); err != nil || string(text) != want[i] {
				t.Errorf("file %d has the text %q (%v), want %q", i, text, err, want[i])
			}
		}
	}

	q := *p
	q.Tasks = tasks()
	output, err := executes(t, &q, func(g *Program) {
		script(g, "ls /proc/self/fd")
		g.UID, g.GID, g.Capabilities = 1234, 1234, Capabilities{}
	})
	if want := "0\n1\n2\n3\n"; err != nil || output != want { // 3 is the directory
		t.Errorf("its descriptors are %q (%v), want %q", output, err, want)
	}
	expect(q.Tasks, "0", "0")

	q = *p
	q.Tasks = tasks()
	q.New |= unix.CLONE_NEWUSER
	q.Root = true
	q.UIDMappings, q.GIDMappings = []IDMapping{{0, 100000, 10}}, []IDMapping{{0, 100000, 10}}
	q.Path, q.Exe = busybox, nil
	devices := filepath.Join(t.TempDir(), "devices")
	if err := os.WriteFile(devices, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q.Devices = devices
	first := FirstTask(len(q.Files))
	q.Args = []string{"sh", "-c", fmt.Sprintf("echo first >&%d; echo second >&%d; exec 2>/dev/null; echo third >&%d", first, first+1, first+2)}
	pid, err := Start(context.Background(), &q)
	if err != nil {
		t.Fatal(err)
	}
	if ws := reap(pid); ws.ExitStatus() == 0 {
		t.Error("it has a descriptor too much")
	}
	expect(q.Tasks, "first\n", "second\n")
	expect([]string{devices}, "0") // before it was executed

	q.Tasks = []string{q.Tasks[0], "/none/tasks"}
	if _, err := Start(context.Background(), &q); err == nil || err.Error() != "opening /none/tasks: no such file or directory" {
		t.Errorf("the error for a file that does not exist is %v", err)
	}
}

func TestAProgramOfAnotherUserOwnsItsFiles(t *testing.T) {
	p := sleeper(t)
	output, err := executes(t, p, func(g *Program) {
		script(g, `id -u; grep CapEff /proc/self/status; stat -Lc %u /dev/stdout; echo x >/dev/stdout`)
		g.UID, g.GID = 1234, 1234
		g.Capabilities = Capabilities{Bounding: ^uint64(0)}
	})
	if want := "1234\nCapEff:\t0000000000000000\n1234\nx\n"; err != nil || output != want {
		t.Errorf("it wrote %q (%v), want %q", output, err, want)
	}
}

func TestAProgramKeepsCapSysAdminForItsFilterOnlyIfItMayHaveIt(t *testing.T) {
	p := sleeper(t)
	for _, kept := range []bool{false, true} {
		output, err := executes(t, p, func(g *Program) {
			g.Args = []string{"grep", "CapEff", "/proc/self/status"}
			g.UID, g.Capabilities = 1234, Capabilities{}
			if kept {
				const admin = 1 << unix.CAP_SYS_ADMIN
				g.Capabilities = Capabilities{Bounding: admin, Permitted: admin, Effective: admin, Inheritable: admin, Ambient: admin}
			}
			g.Filter = []byte{unix.BPF_RET | unix.BPF_K, 0, 0, 0, 0, 0, 0xff, 0x7f}
		})
		want := map[bool]string{false: "CapEff:\t0000000000000000\n", true: "CapEff:\t0000000000200000\n"}[kept]
		if err != nil || output != want {
			t.Errorf("kept %v: %q (%v), want %q", kept, output, err, want)
		}
	}
}

func TestAStepOfAProgramThatFailsIsReportedBeforeAnythingIsExecuted(t *testing.T) {
	p := sleeper(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Program)
		want   string
	}{
		"a missing program":            {func(g *Program) { g.Paths = []string{dir + "/absent", dir} }, "looking for the program: no such file or directory"},
		"a missing directory":          {func(g *Program) { g.Dir = dir + "/absent" }, "entering its working directory: no such file or directory"},
		"a link of /proc":              {func(g *Program) { g.Dir = "/proc/self/cwd" }, "entering its working directory: too many levels of symbolic links"},
		"a program of no known format": {func(g *Program) { g.Paths = []string{file} }, "executing: exec format error"},
		"a filter that is none":        {func(g *Program) { g.Filter = make([]byte, 8); g.NoNewPrivileges = true }, "loading its seccomp filter: invalid argument"},
		"a limit above its maximum": {func(g *Program) {
			g.Limits = []Limit{{unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 2, Max: 1}}}
		}, "setting its limits: invalid argument"},
	} {
		_, err := executes(t, p, func(g *Program) { g.Args = []string{"true"}; c.change(g) })
		var failed *Error
		if !errors.As(err, &failed) || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// A profile that is not finished forbids everything, also the end of a process.
func TestAProcessEndsIfItsFilterForbidsIt(t *testing.T) {
	p := sleeper(t)
	ended := make(chan error, 1)
	go func() {
		_, err := executes(t, p, func(g *Program) {
			g.Args = []string{"true"}
			g.Filter = []byte{unix.BPF_RET | unix.BPF_K, 0, 0, 0, byte(unix.EPERM), 0, 0x05, 0} // SECCOMP_RET_ERRNO
		})
		ended <- err
	}()
	if err := wait.For(t, "the end of the process", ended); err == nil {
		t.Error("its program was executed")
	}
}

func TestTheFirstPathThatCanBeExecutedIsTheProgram(t *testing.T) {
	p := sleeper(t)
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a": 0o644, "c": 0o755, "d": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+busybox+" sh\necho $0\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	output, err := executes(t, p, func(g *Program) {
		g.Dir, g.Args = dir, []string{"x"}
		g.Paths = []string{dir + "/0", "./a", dir + "/b", "./c", dir + "/d"}
	})
	if err != nil || output != "./c\n" {
		t.Errorf("it wrote %q, %v", output, err)
	}
}

func TestALabelIsWrittenToAFileOfTheProcessInTheHostsProc(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	app := start(t, p)
	q := *p
	q.New, q.Joins = 0, []Join{existing(t, app, "pid", unix.CLONE_NEWPID), existing(t, app, "mnt", unix.CLONE_NEWNS)}
	procfs, err := os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer procfs.Close()
	with := func(names ...string) (string, error) {
		return executes(t, &q, func(g *Program) {
			script(g, "cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l")
			g.Label = &Label{Proc: procfs, Names: [2]string(names), Value: "777"}
		})
	}
	// Like a label, this setting belongs to a process and its children.
	for _, names := range [][]string{{"oom_score_adj", "absent"}, {"absent", "oom_score_adj"}} {
		if output, err := with(names...); err != nil || output != "777\n4\n" {
			t.Errorf("%q: it wrote %q, %v", names, output, err)
		}
	}
	for want, names := range map[string][]string{
		"setting its label: no such file or directory": {"absent", "nowhere"},
		"setting its label: is a directory":            {"attr", "oom_score_adj"},
	} {
		if _, err := with(names...); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", names, err, want)
		}
	}
}

// A process that is killed reports nothing.
func TestTheEndOfAProcessBeforeItsProgramIsSeen(t *testing.T) {
	p := sleeper(t)
	pid := 0
	p.Born = func(born int) error { pid = born; return syscall.Kill(born, syscall.SIGKILL) }
	_, err := executes(t, p, func(g *Program) { g.Args = []string{"true"} })
	if !errors.Is(err, ErrEnded) {
		t.Errorf("error %v, want %v", err, ErrEnded)
	}
	refused := errors.New("refused")
	p.Born = func(born int) error { pid = born; return refused }
	if _, err = executes(t, p, func(g *Program) { g.Args = []string{"true"} }); err != refused {
		t.Errorf("error %v, want %v", err, refused)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

// variable is a variable of this program with a value that is not in its file.
var variable [64]byte

func TestAChildHasNothingOfItsParentsMemoryExceptItsPlan(t *testing.T) {
	if !forgets {
		t.Skip("children of a program with the race detector keep its memory")
	}
	p := sleeper(t)
	p.New = unix.CLONE_NEWPID
	app := start(t, p)
	// The text of the secret is nowhere else in this program.
	secret := make([]byte, 0, 64)
	for i := range 16 {
		secret = append(secret, byte('a'+i), byte('Z'-i))
	}
	copy(variable[:], secret)
	var onStack [64]byte
	copy(onStack[:], secret)
	defer func() { _ = slices.Max(onStack[:]) }()
	onHeap := bytes.Repeat(secret, 1000)
	defer func() { _ = slices.Max(onHeap) }()
	stop, stopped := make(chan bool), make(chan bool)
	go func() { // another goroutine's stack
		var s [64]byte
		copy(s[:], secret)
		stopped <- true
		<-stop
		stopped <- s[0] == secret[0]
	}()
	<-stopped
	if !search(t, os.Getpid(), secret) {
		t.Fatal("the secret is not found in the memory of this process")
	}
	for _, twice := range []bool{false, true} {
		for _, program := range []bool{false, true} {
			q := *p
			q.New, q.Joins = 0, nil
			if twice {
				q.Joins = []Join{existing(t, app, "pid", unix.CLONE_NEWPID)}
			}
			seen, anonymous := false, ""
			q.Born = func(pid int) error {
				waits(t, pid, unix.SYS_READ)
				seen, anonymous = search(t, pid, secret), field(t, pid, "RssAnon")[0]

				return errors.New("seen")
			}
			var err error
			if program {
				_, err = executes(t, &q, func(g *Program) { g.Args = []string{"true"} })
			} else {
				_, err = Start(context.Background(), &q)
			}
			if err == nil || err.Error() != "seen" {
				t.Fatal(err)
			}
			if seen {
				t.Errorf("twice %v, program %v: the child has the secret of its parent", twice, program)
			}
			if kb, err := strconv.Atoi(anonymous); err != nil || kb > 32 {
				t.Errorf("twice %v, program %v: the child has %d KB of anonymous memory (%v), want at most 32", twice, program, kb, err)
			}
		}
	}
	stop <- true
	<-stopped
}

func TestTheMemoryOfAProgramIsFoundInItsMaps(t *testing.T) {
	const libraries = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0  [stack]\n" +
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n"
	const program = "00400000-00500000 r-xp 00000000 fe:00 99  /a b\n00500000-00600000 r--p 00100000 fe:00 99  /a b\n" +
		"00600000-00610000 rw-p 00200000 fe:00 99  /a b\n"
	for _, c := range []struct {
		name, maps string
		want       layout
	}{
		{"as it is", program + "00610000-00630000 rw-p 00000000 00:00 0\n00630000-00640000 rw-p 00000000 00:00 0  [heap]\nc000000000-c000400000 rw-p 00000000 00:00 0\n" + libraries,
			layout{span{0x400000, 0x630000}, []span{{0x600000, 0x610000}, {0x610000, 0x630000}}, 0x7ffd00021000}},
		{"without variables of value 0", "00010000-00020000 rw-p 00000000 fe:00 98  /other\n" + program + "00700000-00710000 rw-p 00000000 00:00 0\n" + libraries,
			layout{span{0x400000, 0x610000}, []span{{0x600000, 0x610000}}, 0x7ffd00021000}},
	} {
		got, err := parseLayout(strings.NewReader(c.maps), 0x400123)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %x (%v), want %x", c.name, got, err, c.want)
		}
	}
	for name, maps := range map[string]string{
		"nothing": "", "another program": libraries, "no variables": "00400000-00500000 r-xp 00000000 fe:00 99  /a\n",
		"half a line": "00400000-\n", "no number": "x-y r-xp 0 0 0\n",
		"a C library": program + "7f0000000000-7f0000001000 r-xp 00000000 fe:00 98  /libc.so.6\n" + libraries,
	} {
		if got, err := parseLayout(strings.NewReader(maps), 0x400123); err == nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}

// A process belongs to the host's root and cannot be traced until its program is executed,
// whoever its user is.
func TestAProcessIsHiddenUntilItsProgramIsExecuted(t *testing.T) {
	base := sleeper(t)
	for _, mapped := range []bool{false, true} {
		p := *base
		p.New = unix.CLONE_NEWPID
		if mapped {
			p.New |= unix.CLONE_NEWUSER | unix.CLONE_NEWNET
			p.UIDMappings, p.GIDMappings = []IDMapping{{0, 100000, 65536}}, []IDMapping{{0, 100000, 65536}}
			p.Root = true
		}
		app := start(t, &p)
		fd, err := unix.PidfdOpen(app, 0)
		if err != nil {
			t.Fatal(err)
		}
		pidfd := os.NewFile(uintptr(fd), "pidfd")
		defer pidfd.Close()
		hidden := func(pid int, when string, users ...string) {
			t.Helper()
			var st unix.Stat_t
			if err := unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &st); err != nil {
				t.Fatal(err)
			}
			uid := field(t, pid, "Uid")[0]
			if st.Uid != 0 || !slices.Contains(users, uid) {
				t.Errorf("mapped %v, %s: its memory is of user %d, want 0; its user is %s, want one of %s", mapped, when, st.Uid, uid, users)
			}
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil || len(fds) > len(base.Files)+2 { // the report, and a listener in the end
				t.Errorf("mapped %v, %s: it has %d descriptors (%v)", mapped, when, len(fds), err)
			}
		}
		// Calls of execve wait for a listener that does not answer.
		const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		filter := []unix.SockFilter{{Code: load}, {Code: equal, K: unix.SYS_EXECVE, Jf: 1}, {Code: ret, K: unix.SECCOMP_RET_USER_NOTIF}, {Code: ret, K: unix.SECCOMP_RET_ALLOW}}
		g := &Program{
			Dir: "/", Paths: []string{busybox}, Args: []string{"true"}, UID: 1000, GID: 1000,
			Filter:      unsafe.Slice((*byte)(unsafe.Pointer(&filter[0])), len(filter)*unix.SizeofSockFilter),
			FilterFlags: unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		}
		q := Process{Files: base.Files, Program: g, Root: mapped, Joins: []Join{{What: "the app", File: pidfd, Flags: int(p.New)}}}
		q.Born = func(pid int) error { waits(t, pid, unix.SYS_READ); hidden(pid, "born", "1000", "101000"); return nil }
		b, err := Begin(context.Background(), &q)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		waits(t, b.PID, unix.SYS_EXECVE)
		hidden(b.PID, "its program's user", "1000", "101000")
		_ = syscall.Kill(b.PID, syscall.SIGKILL)
		reap(b.PID)
	}
}

// search reports whether a process has a text in its memory.
func search(t *testing.T, pid int, text []byte) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	var from, to int64
	page := make([]byte, os.Getpagesize())
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); !strings.HasSuffix(f[0], ":") {
			from, to = 0, 0
			if strings.HasPrefix(f[1], "rw") {
				_, _ = fmt.Sscanf(f[0], "%x-%x", &from, &to)
			}
		} else if f[0] == "Rss:" && f[1] != "0" {
			for ; from < to; from += int64(len(page)) {
				if n, _ := memory.ReadAt(page, from); bytes.Contains(page[:n], text) {
					return true
				}
			}
		}
	}
	return false
}

// waits waits until a process is in a system call.
func waits(t *testing.T, pid, number int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("process %d waits in system call %d", pid, number), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		return err == nil && strings.HasPrefix(string(b), fmt.Sprintf("%d ", number))
	})
}

func TestHomesAreReadAsBefore(t *testing.T) {
	for text, want := range map[string]string{
		"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n": "/home/user",
		"user:x:1000:1000::/last":                               "/last",
		"user:x:1000:1000::/last\r\n":                           "/last",
		"user:x:01000:1:2:/zero:":                               "/zero",
		"user:x:1000:1000:/few\nu:x:1000:0::/second:":           "/second",
		"u:x:+1000:0::/sign:\nu:x:1000:0::/plain:":              "/plain",
		"u:x:4294968296:0::/over:\n":                            "",
		"u:x:18446744073709552616:0::/o:":                       "",
		"u:x:1000:0:::":                                         "",
		"":                                                      "",
		":::::\n\n::1000:::/h":                                  "/h",
		strings.Repeat("x", maxLine) + "\nu:x:1000:0::/late:":   "",
		strings.Repeat("x", maxLine-1) + "\nu:x:1000:0::/late:": "/late",
	} {
		p := &passwdLines{uid: 1000, home: make([]byte, 100)}
		got := readHome(p, text)
		if got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
	p := &passwdLines{uid: 1000, home: make([]byte, 4)}
	if readHome(p, "u:x:1000:0::/long:\n"); !p.long {
		t.Error("a home directory is cut off")
	}
	p = &passwdLines{uid: 1000, home: make([]byte, 4)}
	if readHome(p, "u:x:1000:0::/\x00:\n"); !p.long {
		t.Error("a null byte is in a variable")
	}
}

func readHome(p *passwdLines, text string) string {
	for i := range len(text) {
		if found, over := p.next(text[i]); over {
			return ""
		} else if found {
			return string(p.home[:p.n])
		}
	}
	if p.end() {
		return string(p.home[:p.n])
	}
	return ""
}
