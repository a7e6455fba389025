package hold_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// holder is a running program, and how it is run.
type holder struct {
	*os.Process
	attr *syscall.SysProcAttr
}

// run runs the program in a namespace as a stage1 would: without privileges, as a user who
// may not read the file. If there is a wrapper, the wrapper executes the program.
func run(t *testing.T, uid uint32, maps []syscall.SysProcIDMap, wrapper ...string) *holder {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	program, err := hold.Program()
	if len(wrapper) > 0 {
		program, err = hold.ProgramFor("arm64")
	}
	if err != nil {
		t.Skip(err)
	}
	root, err := os.MkdirTemp("/tmp", "hold-") // every user can reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := hold.Fill(root, program); err != nil {
		t.Fatal(err)
	}
	h := &holder{attr: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID,
		Credential: &syscall.Credential{Uid: uid, Gid: uid},
	}}
	if maps != nil {
		h.attr.Cloneflags |= syscall.CLONE_NEWUSER
		h.attr.UidMappings, h.attr.GidMappings, h.attr.GidMappingsEnableSetgroups = maps, maps, true
	}
	// setpriv sets no_new_privs, without which a process may not filter its calls.
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "hold")
	args := []string{"setpriv", "--no-new-privs"}
	if uid == 0 {
		args = append(args, "--bounding-set=-all", "--inh-caps=-all")
	}
	if len(wrapper) > 0 { // the wrapper must be able to read the program
		err = os.Chmod(file, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	args = append(append(args, wrapper...), file)
	if h.Process, err = os.StartProcess(setpriv, args, &os.ProcAttr{Sys: h.attr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Kill(); _, _ = h.Wait() })
	h.sleeps(t)
	return h
}

// sleeps waits until the program has arrived at its last call.
func (h *holder) sleeps(t *testing.T) {
	t.Helper()
	ppoll := strconv.Itoa(unix.SYS_PPOLL) + " "
	wait.Until(t, "it sleeps and ignores SIGCHLD", func() bool {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", h.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(call), ppoll) && h.ignores(t, syscall.SIGCHLD)
	})
}

func (h *holder) ignores(t *testing.T, s syscall.Signal) bool {
	t.Helper()
	set, err := strconv.ParseUint(procStatus(t, h.Pid, "SigIgn"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<(s-1)) != 0
}

// in returns a shell with a script in the namespaces of the holder, as root of its user
// namespace if it has one.
func (h *holder) in(t *testing.T, script string) *exec.Cmd {
	args := []string{"--target", strconv.Itoa(h.Pid), "--pid"}
	if h.attr.UidMappings != nil {
		args = append(args, "--user")
	}
	return exec.CommandContext(t.Context(), "nsenter", append(args, "sh", "-c", script)...)
}

func TestTheHoldersProgramSleepsAndMayDoNothingElse(t *testing.T) {
	h := run(t, 65535, nil)
	if s := procStatus(t, h.Pid, "State"); !strings.HasPrefix(s, "S") {
		t.Errorf("its state is %s", s)
	}
	if rss := procStatus(t, h.Pid, "RssAnon"); rss > "       8 kB" && len(rss) > 6 {
		t.Errorf("its own memory is %s", rss)
	}
	const filtered = "2"
	if s := procStatus(t, h.Pid, "Seccomp"); s != filtered {
		t.Errorf("its calls are filtered in mode %s, want %s", s, filtered)
	}
	for _, set := range []string{"CapPrm", "CapEff"} {
		if caps := procStatus(t, h.Pid, set); strings.Trim(caps, "0") != "" {
			t.Errorf("%s: %s", set, caps)
		}
	}
	// The program continues after a stop.
	for _, s := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := h.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	h.sleeps(t)
}

// oneID maps a single user, root, to one of the host's.
func oneID() []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 1}}
}

func TestOrphansAreReaped(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *holder{
		"as the user of the pause image": func(t *testing.T) *holder { return run(t, 65535, nil) },
		"with a map of one id":           func(t *testing.T) *holder { return run(t, 0, oneID()) },
		"on arm64, under QEMU": func(t *testing.T) *holder {
			qemu, err := exec.LookPath("qemu-aarch64-static")
			if err != nil {
				t.Skip("needs qemu-aarch64-static, of Debian's qemu-user-static")
			}
			return run(t, 0, nil, qemu)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd := h.in(t, "cat <&3 >/dev/null 2>&1 &")
			cmd.ExtraFiles = []*os.File{r}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			// The orphan is the holder's child, until it ends.
			children := fmt.Sprintf("/proc/%d/task/%d/children", h.Pid, h.Pid)
			its, err := os.ReadFile(children)
			if err != nil || len(strings.Fields(string(its))) != 1 {
				t.Fatalf("a process has been left behind, and the holder has inherited %q (%v)", its, err)
			}
			w.Close()
			wait.Until(t, "the holder has reaped it", func() bool {
				its, err := os.ReadFile(children)
				return err != nil || len(its) == 0
			})
		})
	}
}

func TestNobodyButTheHostsRootLooksIntoTheHolder(t *testing.T) {
	const look = `for f in mem environ maps auxv exe ns/net fd/0 root/hold cwd/hold; do (: <"/proc/$1/$f") 2>/dev/null && echo "$f"; done; true`
	for name, c := range map[string]struct {
		uid  uint32
		maps []syscall.SysProcIDMap
		by   func(t *testing.T, h *holder) *exec.Cmd
	}{
		"its own user": {65535, nil, func(t *testing.T, h *holder) *exec.Cmd {
			return exec.CommandContext(t.Context(), "setpriv", "--reuid=65535", "--regid=65535", "--clear-groups", "sh", "-c", look, "sh", strconv.Itoa(h.Pid))
		}},
		"root without capabilities": {65535, nil, func(t *testing.T, h *holder) *exec.Cmd {
			return exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c", look, "sh", strconv.Itoa(h.Pid))
		}},
		"root of its user namespace, the only id of which is its own": {0, oneID(), func(t *testing.T, h *holder) *exec.Cmd {
			return h.in(t, strings.ReplaceAll(look, "$1", strconv.Itoa(h.Pid)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.by(t, run(t, c.uid, c.maps)).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("it opens %q (%v)", strings.Fields(string(out)), err)
			}
		})
	}
}

// The instructions are as llvm-mc disassembles them.
func TestTheProgramIsThatOfItsArchitecture(t *testing.T) {
	for arch, want := range map[string]string{
		"amd64": "bf04000000" + "be00000000" + "b89d000000" + "0f05" + // prctl(PR_SET_DUMPABLE, 0)
			"bf11000000" + "beb0004000" + "ba00000000" + "41ba08000000" + "b80d000000" + "0f05" + // rt_sigaction(SIGCHLD, 0x4000b0, NULL, 8)
			"bf16000000" + "be02000000" + "bad0004000" + "b89d000000" + "0f05" + // prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0x4000d0)
			"bf00000000" + "be00000000" + "ba00000000" + "41ba00000000" + "b80f010000" + "0f05" + // ppoll(NULL, 0, NULL, NULL)
			"ebe2", // jmp -30
		"arm64": "800080d2" + "010080d2" + "e81480d2" + "010000d4" + // mov x0, #4; mov x1, #0; mov x8, #167; svc #0
			"200280d2" + "011680d2" + "0108a0f2" + "020080d2" + "030180d2" + "c81080d2" + "010000d4" + // mov x1, #176; movk x1, #64, lsl #16
			"c00280d2" + "410080d2" + "021a80d2" + "0208a0f2" + "e81480d2" + "010000d4" +
			"000080d2" + "010080d2" + "020080d2" + "030080d2" + "280980d2" + "010000d4" +
			"faffff17", // b #-24
	} {
		program, err := hold.ProgramFor(arch)
		if err != nil {
			t.Fatal(err)
		}
		const start = 64 + 2*56 + 96 // headers and data
		if got := hex.EncodeToString(program[start:]); got != want {
			t.Errorf("%s executes\n%s, want\n%s", arch, got, want)
		}
		if entry := binary.LittleEndian.Uint64(program[24:]); entry != 0x400000+start {
			t.Errorf("%s begins at %#x", arch, entry)
		}
	}
	if _, err := hold.ProgramFor("riscv64"); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("for another machine: %v", err)
	}
}

func procStatus(t *testing.T, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s of process %d", field, pid)
	return ""
}
