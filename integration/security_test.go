package integration

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestCapabilitiesAreTheDefaultOnes(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		const usual = "00000000a80425fb" // containerd's default: 14 capabilities
		r := c.inspect(t)
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			if r.Status[set] != usual {
				t.Errorf("%s is %s, want %s", set, r.Status[set], usual)
			}
		}
		if r.Status["CapAmb"] != "0000000000000000" {
			t.Errorf("CapAmb is %s", r.Status["CapAmb"])
		}
		if r.Status["NoNewPrivs"] != "1" {
			t.Errorf("NoNewPrivs is %s", r.Status["NoNewPrivs"])
		}
		if eff := c.inspect(t, "--cap-drop", "CAP_CHOWN").Status["CapEff"]; eff != "00000000a80425fa" {
			t.Errorf("without CAP_CHOWN: %s", eff)
		}
	})
}

func TestPrivilegedHasAllCapabilitiesAndNothingMasked(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t, "--privileged")
		own := ""
		for _, l := range strings.Split(read(t, "/proc/self/status"), "\n") {
			if v, ok := strings.CutPrefix(l, "CapBnd:"); ok {
				own = strings.TrimSpace(v)
			}
		}
		// The container cannot have more capabilities than this process's own bounding set.
		if r.Status["CapEff"] != own {
			t.Errorf("CapEff is %s, want %s", r.Status["CapEff"], own)
		}
		for point := range r.Mounts {
			if strings.HasPrefix(point, "/proc/") {
				t.Errorf("%s is covered", point)
			}
		}
	})
}

func TestProcAndSysAreMaskedByDefault(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		masked := []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}
		masked = slices.DeleteFunc(masked, func(p string) bool { return !exists(p) })
		r := c.run(t, []string{"--rm"}, c.id(), append([]string{"sh", "-c", `
			for p; do
				test -d $p && ls -A $p || head -c 1 $p
			done
			echo 1 2>/dev/null > /proc/sys/kernel/domainname || echo "proc/sys is read-only"
			echo 2>/dev/null > /proc/sysrq-trigger || echo "sysrq-trigger is read-only"
			mkdir /sys/fs/cgroup/x 2>/dev/null || echo "cgroups are read-only"`, "sh"}, masked...)...).must(t)
		if want := "proc/sys is read-only\nsysrq-trigger is read-only\ncgroups are read-only\n"; r.stdout != want {
			t.Errorf("of %v and what is read-only: %q, want %q", masked, r.stdout, want)
		}
	})
}

func TestTheRootIsReadOnlyIfItIsAReadonlyPath(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, p := range []string{"/", "//", "/."} {
			readonly := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
				s.Linux.ReadonlyPaths = []string{p}
				return nil
			}
			task := c.newTask(t, c.container(t, []string{"sh", "-c", "(: > /made) 2>/dev/null && exit 3; : > /dev/shm/made"}, readonly), cio.NullIO)
			exited := c.wait(t, task)
			if err := task.Start(c.context(t)); err != nil {
				t.Fatalf("start %s: %v", task.ID(), err)
			}
			expectExit(t, exited, 0)
		}
	})
}

func TestSeccompDefaultProfileIsInForce(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if mode := c.inspect(t, "--seccomp").Status["Seccomp"]; mode != "2" {
			t.Errorf("Seccomp is %s with the default profile", mode)
		}
		if mode := c.inspect(t).Status["Seccomp"]; mode != "0" {
			t.Errorf("Seccomp is %s without a profile", mode)
		}
		c.run(t, []string{"--rm"}, c.id(), "testprog", "keyring").must(t).mustSay(t, "allowed\n")
		c.run(t, []string{"--rm", "--seccomp"}, c.id(), "testprog", "keyring").must(t).mustSay(t, "forbidden\n")
		// An exec gets the container's profile.
		id := c.start(t, []string{"--seccomp"}, "testprog", "sleep", "1000")
		c.exec(t, nil, id, "testprog", "keyring").must(t).mustSay(t, "forbidden\n")
	})
}

func TestDevicesAreTheDefaultOnes(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.run(t, []string{"--rm"}, c.id(), "sh", "-c", "find /dev -type c -o -type b | sort | tr '\\n' ' '").must(t)
		for _, d := range strings.Fields(r.stdout) {
			if want := []string{"/dev/full", "/dev/null", "/dev/pts/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}; !slices.Contains(want, d) {
				t.Errorf("device %s", d)
			}
		}
		r = c.run(t, []string{"--rm"}, c.id(), "sh", "-c", `
			for d in null zero full random urandom tty; do test -c /dev/$d || echo no $d; done
			for l in ptmx fd stdin stdout stderr; do readlink /dev/$l; done`).must(t)
		if want := "pts/ptmx\n/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\n"; r.stdout != want {
			t.Errorf("links %q, want %q", r.stdout, want)
		}
	})
}

func TestOnlyDevicesOfTheSpecCanBeOpened(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if !exists("/dev/fuse") {
			t.Skip("this machine has no /dev/fuse, a device that needs no capability")
		}
		script := "rm -f /dev/fuse; mknod /tmp/fuse c 10 229 && testprog open /tmp/fuse"
		for _, want := range []struct {
			flags []string
			says  string
		}{
			{nil, "open /tmp/fuse: operation not permitted\n"},
			{[]string{"--device", "/dev/fuse"}, "opened\n"},
			{[]string{"--privileged"}, "opened\n"},
		} {
			c.run(t, append([]string{"--rm"}, want.flags...), c.id(), "sh", "-c", script).must(t).mustSay(t, want.says)
		}
		c.run(t, []string{"--rm", "--device", "/dev/fuse"}, c.id(), "testprog", "open", "/dev/fuse").must(t).mustSay(t, "opened\n")
	})
}

func TestLimitsAreTheSpecs(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		// The shell reports the limit, because the Go runtime raises its own limit.
		limits := []string{"sh", "-c", "ulimit -Sn; ulimit -Hn"}
		c.run(t, []string{"--rm"}, c.id(), limits...).must(t).mustSay(t, "1024\n1024\n")
		c.run(t, []string{"--rm", "--rlimit-nofile", "100:200"}, c.id(), limits...).must(t).mustSay(t, "100\n200\n")
		if c.usesRunc() {
			return // in an exec the Go runtime of runc 1.1 may raise the soft limit afterwards
		}
		id := c.start(t, []string{"--rlimit-nofile", "100:200"}, "testprog", "sleep", "1000")
		c.exec(t, nil, id, limits...).must(t).mustSay(t, "100\n200\n")
	})
}

func TestCPUSharesAreTheCgroups(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, []string{"--cpu-shares", "512"}, "testprog", "sleep", "1000")
		file := c.cgroupFile(t, id, "cpu", "cpu.shares", "cpu.weight")
		want := []string{"512"}
		if strings.HasSuffix(file, "cpu.weight") {
			want = []string{"59"} // the default number of shares becomes the default weight
			if c.usesRunc() {
				want = append(want, "20") // older versions of runc translate the range linearly
			}
		}
		if got := strings.TrimSpace(read(t, file)); !slices.Contains(want, got) {
			t.Errorf("%s is %s, want %q", file, got, want)
		}
	})
}

func TestMountsOfTheSpecAreThere(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t)
		for point, kind := range map[string]string{
			"/": "overlay", "/proc": "proc", "/dev": "tmpfs", "/dev/pts": "devpts", "/dev/shm": "tmpfs",
			"/dev/mqueue": "mqueue", "/sys": "sysfs", "/run": "tmpfs",
		} {
			if r.Mounts[point].Type != kind {
				t.Errorf("%s is %q, want %s", point, r.Mounts[point].Type, kind)
			}
		}
		if !slices.Contains(r.Mounts["/sys"].Options, "ro") {
			t.Errorf("/sys has options %v", r.Mounts["/sys"].Options)
		}
		for point, m := range r.Mounts {
			if slices.ContainsFunc(m.Propagation, func(p string) bool { return strings.HasPrefix(p, "shared:") }) {
				t.Errorf("%s is shared: %v", point, m.Propagation)
			}
			if strings.Contains(point, suite.dir) {
				t.Errorf("%s is the host's", point)
			}
		}
	})
}
