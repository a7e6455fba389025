package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
)

// odd executes a daemon with a value of its own for each attribute that processes inherit (setpriv(1) and
// chrt(1) are util-linux's). 157 is prctl(2), 41 PR_SET_THP_DISABLE, and 28 PR_SET_SECUREBITS, here of
// SECBIT_NO_CAP_AMBIENT_RAISE. 250 is keyctl(2), and 1 KEYCTL_JOIN_SESSION_KEYRING.
const odd = `
	umask 077
	trap '' USR1
	echo 70000 >/proc/$$/timerslack_ns
	echo 100 >/proc/$$/oom_score_adj
	exec taskset --cpu-list 0 nice -n 5 ionice -c 2 -n 6 chrt --batch 0 \
		perl -e 'syscall(157, 41, 1, 0, 0, 0) == 0 or die; syscall(157, 28, 64, 0, 0, 0) == 0 or die;
			my $name = "odd"; my $id = syscall(250, 1, $name); $id > 0 or die;
			open(my $f, ">", $ENV{ODD_KEYRING}) or die; print $f $id; close $f; exec @ARGV' -- "$@"`

// The table is in section 9 of docs/stage1-abi.md.
func TestWhatProcessesInheritFromContainerd(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if c.wraps != "" {
			t.Skip("its attributes are those of the column oci")
		}
		keyring := filepath.Join(t.TempDir(), "keyring")
		d, err := startWith(c.context(t), daemon.Options{
			Dir:       filepath.Join(suite.dir, "odd-"+c.name),
			Programs:  suite.programs,
			Env:       []string{"RKT_DATA_DIR=" + dataDir(filepath.Join(suite.dir, "odd-"+c.name)), "ODD_KEYRING=" + keyring},
			Namespace: c.daemon.Namespace() + "-odd",
			Wrapper:   []string{"sh", "-c", odd, "odd"},
		})
		must(t, err)
		odd := &column{name: c.name, runtime: c.runtime, daemon: d}
		odd.client, err = d.Client()
		must(t, err)
		t.Cleanup(func() { odd.discard(t) })

		hooked := filepath.Join(t.TempDir(), "hook")
		task := odd.running(t, []string{"testprog", "sleep", "1000"}, func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			s.Process.OOMScoreAdj = nil
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{
				Path: "/bin/sh", Args: []string{"sh", "-c", "cat /proc/self/status >" + hooked}, Env: []string{"PATH=/bin:/usr/bin"},
			}}}
			return nil
		})
		ctx := odd.context(t)
		spec := process(t, ctx, task, "testprog", "sleep", "1000")
		spec.OOMScoreAdj = nil
		exec, err := task.Exec(ctx, "e", spec, cio.NullIO)
		must(t, err)
		must(t, exec.Start(ctx))

		processes := map[string]int{"the first process": int(task.Pid()), "an exec": int(exec.Pid())}
		if c.name == "native" {
			debugged := &debugged{odd, task.ID(), task}
			cmd := debugged.begin(t, "sleep 1000")
			pid := debugged.debugApp(t)
			processes["a debug app"] = pid
			defer func() {
				must(t, unix.Kill(pid, unix.SIGKILL))
				_ = cmd.Wait() // its exit code is the process's
				debugged.expectNoDebugApp(t, pid)
			}()
		}
		all := statusOf(t, os.Getpid(), "Cpus_allowed_list")
		theirs, err := unix.SchedGetAttr(d.PID(), 0)
		must(t, err)
		for name, pid := range processes {
			for field, want := range map[string]string{"Umask": "0022", "Cpus_allowed_list": all, "THP_enabled": "0"} {
				if c.name == "runc" && field != "THP_enabled" {
					continue // runc 1.1, Debian's, does not reset the CPUs, and not the umask of execs; 1.2.7 and later do
				}
				if got := statusOf(t, pid, field); got != want {
					t.Errorf("%s of %s: %s, want %s", field, name, got, want)
				}
			}
			ignored, err := strconv.ParseUint(statusOf(t, pid, "SigIgn"), 16, 64)
			must(t, err)
			if ignored&(1<<(unix.SIGUSR1-1)) != 0 && !c.usesRunc() {
				t.Errorf("%s ignores SIGUSR1", name)
			}
			attr, err := unix.SchedGetAttr(pid, 0)
			must(t, err)
			if attr.Policy != unix.SCHED_BATCH || attr.Nice != theirs.Nice {
				t.Errorf("%s has the policy %d and the nice value %d, want containerd's", name, attr.Policy, attr.Nice)
			}
			const best, ofProcess = 2, 1
			if prio, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, uintptr(pid), 0); errno != 0 || prio != best<<13|6 {
				t.Errorf("%s has the I/O priority %x (%v), want containerd's", name, prio, errno)
			}
			if slack := strings.TrimSpace(read(t, fmt.Sprintf("/proc/%d/timerslack_ns", pid))); slack != "70000" {
				t.Errorf("%s has the timer slack %s, want containerd's", name, slack)
			}
			if score := strings.TrimSpace(read(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid))); name != "a debug app" && score != "100" && score != "101" { // containerd adds 1 for shims
				t.Errorf("%s has the OOM score %s, want its shim's", name, score)
			}
		}
		for name, said := range map[string]func(...string) string{
			"the first process": func(args ...string) string { return odd.output(t, append([]string{"testprog"}, args...)) },
			"an exec": func(args ...string) string {
				return odd.exec(t, nil, task.ID(), append([]string{"testprog"}, args...)...).must(t).stdout
			},
		} {
			if bits := said("securebits"); bits != "64\n" {
				t.Errorf("%s has the securebits %q, want containerd's", name, bits)
			}
			if id := said("session-keyring"); strings.TrimSpace(id) == read(t, keyring) {
				t.Errorf("%s has containerd's session keyring", name)
			}
		}
		if c.name != "oci" && !strings.Contains(read(t, hooked), "\nCpus_allowed_list:\t0\n") { // oci resets it before it executes runc
			t.Errorf("a hook of the host has not containerd's CPUs: %s", read(t, hooked))
		}
	})
}

// The fields that an exec leaves out are its app's, as with runc since 1.2.
func TestAnExecHasTheUmaskSchedulerAndIOPriorityOfItsApp(t *testing.T) {
	eachOf(t, []string{"native", "nspawn", "oci"}, func(t *testing.T, c *column) {
		umask := uint32(0o27)
		task := c.running(t, []string{"testprog", "sleep", "1000"}, func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			s.Process.User.Umask = &umask
			if c.name == "oci" { // runc 1.1 knows no other of these fields
				return nil
			}
			s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 6}
			s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 7}
			return nil
		})
		ctx := c.context(t)
		spec := process(t, ctx, task, "testprog", "sleep", "1000")
		spec.User.Umask, spec.IOPriority, spec.Scheduler = nil, nil, nil
		exec, err := task.Exec(ctx, "e", spec, cio.NullIO)
		must(t, err)
		must(t, exec.Start(ctx))
		if got := statusOf(t, int(exec.Pid()), "Umask"); got != "0027" {
			t.Errorf("the umask is %s", got)
		}
		if c.name == "oci" {
			return
		}
		attr, err := unix.SchedGetAttr(int(exec.Pid()), 0)
		must(t, err)
		if attr.Policy != unix.SCHED_BATCH || attr.Nice != 7 {
			t.Errorf("the policy is %d, the nice value %d", attr.Policy, attr.Nice)
		}
		if prio, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, 1, uintptr(exec.Pid()), 0); errno != 0 || prio != 2<<13|6 {
			t.Errorf("the I/O priority is %x (%v)", prio, errno)
		}
	})
}

// HPC sites have such files. runc has no limit.
func TestTheHomeOfAUserBehindTheFirstMiBOfPasswd(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		var passwd strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&passwd, "user%d:x:%d:%d::/home/user%d:/bin/sh\n", i, 1000+i, 1000+i, i)
		}
		passwd.WriteString("root:x:0:0::/late:/bin/sh\n")
		file := filepath.Join(t.TempDir(), "passwd")
		must(t, os.WriteFile(file, []byte(passwd.String()), 0o644))
		got := c.output(t, []string{"sh", "-c", "echo $HOME"},
			oci.WithMounts([]specs.Mount{{Type: "bind", Source: file, Destination: "/etc/passwd", Options: []string{"rbind", "ro"}}}))
		if got != "/late\n" {
			t.Errorf("HOME is %q", got)
		}
	})
}

func TestTheMessageQueuesOfAUserNamespaceBelongToItsRoot(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if c.name == "nspawn" {
			t.Skip("it has no user namespaces")
		}
		ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
		task := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithUserNamespace(ids, ids))
		var st unix.Stat_t
		must(t, unix.Stat(fmt.Sprintf("/proc/%d/root/dev/mqueue", task.Pid()), &st))
		if st.Uid != 100_000 {
			t.Errorf("the owner is %d on the host", st.Uid)
		}
	})
}
