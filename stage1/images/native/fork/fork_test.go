package fork

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const busybox = "/bin/busybox"

var kinds = []string{"mnt", "pid", "net", "ipc", "uts", "user"}

// sleeper is a process that ends with its standard input.
func sleeper(t *testing.T) *Process {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making and joining namespaces needs root")
	}
	exe, err := os.Open(busybox)
	if err != nil {
		t.Skip("needs a static busybox at " + busybox)
	}
	t.Cleanup(func() { exe.Close() })
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return &Process{Exe: exe, Args: []string{"cat"}, Files: []*os.File{in, null, null}}
}

// start starts p, and ends it with the test.
func start(t *testing.T, p *Process) int {
	t.Helper()
	pid, err := Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL); reap(pid) })
	return pid
}

func namespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	n, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func existing(t *testing.T, pid int, kind string, flag int) Join {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/ns/%s", pid, kind)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Join{What: kind + " namespace " + path, File: f, Flags: flag}
}

// field returns the values of a line of /proc/PID/status.
func field(t *testing.T, pid int, name string) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(v)
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return nil
}

func children(t *testing.T) string {
	t.Helper()
	b, err := exec.Command(busybox, "sh", "-c", "cat /proc/$PPID/task/*/children").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNewNamespacesAreNewAndTheOthersStay(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
	pid := start(t, p)
	for _, kind := range kinds {
		isNew := namespace(t, pid, kind) != namespace(t, os.Getpid(), kind)
		if want := slices.Contains([]string{"mnt", "pid", "ipc"}, kind); isNew != want {
			t.Errorf("%s namespace is new: %v, want %v", kind, isNew, want)
		}
	}
	if nspid := field(t, pid, "NSpid"); nspid[len(nspid)-1] != "1" {
		t.Errorf("NSpid is %v, want 1 at the end", nspid)
	}
}

func TestATimeNamespaceIsEnteredWithItsClocksSet(t *testing.T) {
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.Skip("the kernel has no time namespaces")
	}
	p := sleeper(t)
	p.New = unix.CLONE_NEWTIME | unix.CLONE_NEWPID
	for _, clocks := range []string{"", "boottime 3600 0\n"} {
		p.Clocks = []byte(clocks)
		for _, apart := range []bool{false, true} {
			p.Apart = apart
			pid := start(t, p)
			if namespace(t, pid, "time") == namespace(t, os.Getpid(), "time") {
				t.Errorf("apart %v: it is in our time namespace", apart)
			}
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timens_offsets", pid))
			if set := strings.Join(strings.Fields(string(b)), " "); err != nil || strings.HasSuffix(set, "boottime 3600 0") != (clocks != "") {
				t.Errorf("apart %v, clocks %q: the offsets are %q (%v)", apart, clocks, set, err)
			}
		}
	}
	p.Clocks = []byte("boottime x\n")
	_, err := Start(context.Background(), p)
	if want := "setting the clocks of its time namespace: invalid argument"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestAChildHoldsTheFilesItWasGivenAndNoOther(t *testing.T) {
	p := sleeper(t)
	extra, err := os.Open("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	inherited, err := unix.Open("/proc/uptime", unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	// The given files overlap their targets in both directions.
	p.Files = append(p.Files, extra, p.Files[0])
	for _, twice := range []bool{false, true} {
		p.Apart = twice
		pid := start(t, p)
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range fds {
			target, _ := os.Readlink(filepath.Join(dir, e.Name()))
			got = append(got, e.Name()+" "+strings.SplitN(target, ":", 2)[0])
		}
		want := []string{"0 pipe", "1 /dev/null", "2 /dev/null", "3 /proc/version", "4 pipe"}
		if !slices.Equal(got, want) {
			t.Errorf("with a second clone %v: descriptors %q, want %q", twice, got, want)
		}
	}
}

func TestDescriptorsMayBePermuted(t *testing.T) {
	p := sleeper(t)
	// The files have ascending descriptors. They are passed in the reverse order,
	// so that each target is the source of another file.
	var files []*os.File
	for i := range 12 {
		f, err := os.CreateTemp(t.TempDir(), fmt.Sprintf("%02d-*", i))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	slices.Reverse(files)
	p.Files = append(p.Files, files...)
	pid := start(t, p)
	for i, f := range files {
		got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, 3+i))
		if err != nil || got != f.Name() {
			t.Errorf("descriptor %d is %s (%v), want %s", 3+i, got, err, f.Name())
		}
	}
}

func TestAJoinedPIDNamespaceHasTheChildInside(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWPID
	first := start(t, p)

	p.New = 0
	p.Joins = []Join{existing(t, first, "pid", unix.CLONE_NEWPID)}
	second := start(t, p)
	if a, b := namespace(t, first, "pid"), namespace(t, second, "pid"); a != b {
		t.Errorf("in %s, want %s", b, a)
	}
	if ppid := field(t, second, "PPid"); ppid[0] != strconv.Itoa(os.Getpid()) {
		t.Errorf("its parent is %s, want %d", ppid[0], os.Getpid())
	}
	if nspid := field(t, second, "NSpid"); len(nspid) < 2 || nspid[0] != strconv.Itoa(second) {
		t.Errorf("NSpid is %v, want %d and the pid inside", nspid, second)
	}
}

func TestANewUserNamespaceIsMappedBeforeTheExec(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	p.UIDMappings = []IDMapping{{0, 100000, 1000}, {1000, 300000, 10}}
	p.GIDMappings = []IDMapping{{0, 200000, 1000}}
	p.Root = true
	pid := start(t, p)
	if uid := field(t, pid, "Uid"); !slices.Equal(uid, []string{"100000", "100000", "100000", "100000"}) {
		t.Errorf("Uid is %v, want 100000", uid)
	}
	if gid := field(t, pid, "Gid"); gid[0] != "200000" {
		t.Errorf("Gid is %v, want 200000", gid)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(b)); !slices.Equal(got, []string{"0", "100000", "1000", "1000", "300000", "10"}) {
		t.Errorf("uid_map is %v", got)
	}
	if eff := field(t, pid, "CapEff"); strings.Trim(eff[0], "0") == "" {
		t.Error("root of the user namespace has no capabilities")
	}
}

func TestAUserNamespaceIsJoinedWithOthers(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	p.UIDMappings = []IDMapping{{0, 100000, 1000}}
	p.GIDMappings = []IDMapping{{0, 100000, 1000}}
	p.Root = true
	owner := start(t, p)

	p.New = unix.CLONE_NEWNS | unix.CLONE_NEWPID
	p.UIDMappings, p.GIDMappings = nil, nil
	p.Joins = []Join{
		existing(t, owner, "net", unix.CLONE_NEWNET),
		existing(t, owner, "ipc", unix.CLONE_NEWIPC),
		existing(t, owner, "user", unix.CLONE_NEWUSER),
	}
	pid := start(t, p)
	for _, kind := range []string{"net", "ipc", "user"} {
		if a, b := namespace(t, owner, kind), namespace(t, pid, kind); a != b {
			t.Errorf("%s: in %s, want %s", kind, b, a)
		}
	}
	if uid := field(t, pid, "Uid"); uid[0] != "100000" {
		t.Errorf("Uid is %v, want 100000", uid)
	}
}

func TestAllNamespacesOfAProcessAreEnteredByItsPidfd(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	p.UIDMappings = []IDMapping{{0, 100000, 1000}}
	p.GIDMappings = []IDMapping{{0, 100000, 1000}}
	p.Root = true
	app := start(t, p)
	fd, err := unix.PidfdOpen(app, 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	defer pidfd.Close()

	q := sleeper(t)
	q.Joins = []Join{{What: "the app", File: pidfd, Flags: int(p.New)}}
	q.Root = true
	pid := start(t, q)
	for _, kind := range kinds {
		if a, b := namespace(t, app, kind), namespace(t, pid, kind); a != b {
			t.Errorf("%s: in %s, want %s", kind, b, a)
		}
	}
}

// A network namespace that belongs to the host's user namespace can be joined only
// before a new user namespace is made: after that the process has no rights over it.
func TestAForeignNetworkIsJoinedBeforeANewUserNamespaceIsMade(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWNET
	owner := start(t, p)

	p.New = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	p.UIDMappings = []IDMapping{{0, 100000, 1000}}
	p.GIDMappings = []IDMapping{{0, 100000, 1000}}
	p.Root = true
	p.Joins = []Join{existing(t, owner, "net", unix.CLONE_NEWNET)}
	pid := start(t, p)
	if a, b := namespace(t, owner, "net"), namespace(t, pid, "net"); a != b {
		t.Errorf("in %s, want %s", b, a)
	}
	if uid := field(t, pid, "Uid"); uid[0] != "100000" {
		t.Errorf("Uid is %v, want 100000", uid)
	}
}

func TestIgnoredSignalsAreDefaultInTheChild(t *testing.T) {
	p := sleeper(t)
	p.Path, p.Exe = busybox, nil
	// The Go runtime goes on ignoring signals that are ignored at its start. So the test is
	// run again by a shell that ignores a few.
	if os.Getenv("FORK_TEST_IGNORED") == "" {
		cmd := exec.Command(busybox, "sh", "-c", `trap '' HUP INT PIPE USR1; ulimit -Sn 500; exec "$0" "$@"`,
			os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "FORK_TEST_IGNORED=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	pid := start(t, p)
	for _, set := range []string{"SigIgn", "SigBlk"} {
		if v := field(t, pid, set); strings.Trim(v[0], "0") != "" {
			t.Errorf("%s is %s, want none", set, v[0])
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "Max open files"); ok && strings.Fields(v)[0] != "500" {
			t.Errorf("the limit of open files is %s, want the 500 that this process was started with", v)
		}
	}
}

func TestAFailedStepIsASentence(t *testing.T) {
	base := sleeper(t)
	dir := t.TempDir()
	file, err := os.Open(base.Exe.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	uts := existing(t, os.Getpid(), "uts", unix.CLONE_NEWUTS)
	for name, c := range map[string]struct {
		change func(*Process)
		want   string
		errno  syscall.Errno
	}{
		"a namespace of another type": {
			func(p *Process) {
				p.Joins = []Join{uts, {What: "network namespace /run/blue", File: uts.File, Flags: unix.CLONE_NEWNET}}
			},
			"joining network namespace /run/blue: invalid argument", unix.EINVAL,
		},
		"no namespace at all": {
			func(p *Process) { p.Joins = []Join{{What: "pid namespace x", File: file, Flags: unix.CLONE_NEWPID}} },
			"joining pid namespace x: invalid argument", unix.EINVAL,
		},
		"no program": {
			func(p *Process) { p.Exe, p.Path = nil, dir+"/absent" },
			"executing " + dir + "/absent: no such file or directory", unix.ENOENT,
		},
		"no program, in a user namespace": {
			func(p *Process) {
				p.New, p.Root = unix.CLONE_NEWUSER, true
				p.UIDMappings, p.GIDMappings = []IDMapping{{0, 0, 10}}, []IDMapping{{0, 0, 10}}
				p.Exe, p.Path = nil, dir+"/absent"
			},
			"executing " + dir + "/absent: no such file or directory", unix.ENOENT,
		},
		"a user namespace without root": {
			func(p *Process) {
				p.New, p.Root = unix.CLONE_NEWUSER, true
				p.UIDMappings, p.GIDMappings = []IDMapping{{1, 100000, 10}}, []IDMapping{{0, 100000, 10}}
			},
			"becoming user 0 of its user namespace: invalid argument", unix.EINVAL,
		},
		"overlapping maps": {
			func(p *Process) {
				p.New = unix.CLONE_NEWUSER
				p.UIDMappings, p.GIDMappings = []IDMapping{{0, 1, 10}, {5, 100, 10}}, []IDMapping{{0, 1, 1}}
			},
			"map users of a user namespace", unix.EINVAL,
		},
		"flags that exclude each other": {
			func(p *Process) { p.New = unix.CLONE_NEWNS | unix.CLONE_FS },
			"creating the process with new namespaces (mount): invalid argument", unix.EINVAL,
		},
		"a directory that is a file": {
			func(p *Process) { p.Dir = file },
			"entering its working directory: not a directory", unix.ENOTDIR,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := *base
			c.change(&p)
			pid, err := Start(context.Background(), &p)
			if err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				reap(pid)
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.errno) {
				t.Errorf("error %q, want %q", err, c.want)
			}
			if left := strings.Fields(children(t)); len(left) != 1 { // the lister itself
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

func TestManyStartsAtOnceLeaveNothingBehind(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWPID
	target := start(t, p)
	enter := existing(t, target, "pid", unix.CLONE_NEWPID)
	before := openFiles(t)
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			q := *p
			q.Args = []string{"true"}
			q.New = 0
			if i%2 == 0 {
				q.Joins = []Join{enter}
			}
			pid, err := Start(context.Background(), &q)
			if err != nil {
				t.Error(err)
				return
			}
			var ws syscall.WaitStatus
			if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
				t.Errorf("process %d: %v, status %d", pid, err, ws.ExitStatus())
			}
		})
	}
	group.Wait()
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// If a process cannot read its program, it and its files in /proc belong to the host's
// root. Otherwise they belong to root of its user namespace.
func TestAProgramIsExecutedOnlyWhereItsProcessCannotReadIt(t *testing.T) {
	base := sleeper(t)
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	const mapped = 100000
	for _, c := range []struct {
		name    string
		mode    os.FileMode
		host    uint32 // its id outside
		refused bool
	}{
		{"of others", 0o711, mapped, false},
		{"of everybody", 0o755, mapped, true},
		{"its own", 0o711, 0, true},
		{"its own, unreadable for every user", 0o111, 0, true}, // but for the capabilities of its user namespace
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "busybox")
			if err := os.WriteFile(file, program, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil {
				t.Fatal(err)
			}
			exe, err := os.OpenFile(file, unix.O_PATH, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer exe.Close()
			for _, unreadable := range []bool{true, false} {
				p := *base
				p.Exe, p.Unreadable = exe, unreadable
				p.New, p.Root = unix.CLONE_NEWUSER, true
				p.UIDMappings, p.GIDMappings = []IDMapping{{0, c.host, 10}}, []IDMapping{{0, c.host, 10}}
				if unreadable && c.refused {
					if pid, err := Start(context.Background(), &p); !errors.Is(err, ErrReadable) {
						t.Errorf("process %d: error %v, want %v", pid, err, ErrReadable)
					}
					continue
				}
				pid := start(t, &p)
				var st unix.Stat_t
				if err := unix.Stat(fmt.Sprintf("/proc/%d/mem", pid), &st); err != nil {
					t.Fatal(err)
				}
				want := c.host
				if !c.refused {
					want = 0
				}
				if st.Uid != want {
					t.Errorf("unreadable %v: its memory is of user %d, want %d", unreadable, st.Uid, want)
				}
			}
		})
	}
}
