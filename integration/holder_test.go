package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// TestTheHolderHasNothing checks the holder process and its share of the sandbox's settings.
// cri.TestWhatAPauseContainerRefusesTheHolderRefuses attacks the holder.
func TestTheHolderHasNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		b := c.startBox(t, &cri.PodSandboxConfig{Hostname: "blue", Linux: &cri.LinuxPodSandboxConfig{Sysctls: map[string]string{"kernel.msgmax": "4711"}}})
		for field, want := range map[string]string{
			"Uid": "65535\t65535\t65535\t65535", "Gid": "65535\t65535\t65535\t65535", "Groups": "",
			"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
			"NoNewPrivs": "1",
		} {
			if got := statusOf(t, b.pid, field); got != want {
				t.Errorf("%s: %q, want %q", field, got, want)
			}
		}
		// The holder installs its filter itself, on a busy machine after StartSandbox has been
		// answered.
		wait.Observe(t, "the holder has a filter", func() (bool, string) {
			mode := statusOf(t, b.pid, "Seccomp")
			return mode == "2", "Seccomp: " + mode
		})
		expectUndumpable(t, b.pid)
		proc, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(b.pid), "root/proc"))
		if err != nil || c.name != "oci" && len(proc) > 0 {
			t.Errorf("its /proc has %d entries (%v)", len(proc), err)
		}
		task := b.runMember(t, []string{"sh", "-c", "[ $(hostname) = blue ] && [ $(cat /proc/sys/kernel/msgmax) = 4711 ]"})
		expectExit(t, c.wait(t, task), 0)
		c.drop(t, task)
	})
}

// expectUndumpable fails the test unless only the host's root may access a process. The kernel
// gives the files in /proc of an undumpable process to root of the user namespace that its
// memory belongs to. That must not be the pod's namespace.
func expectUndumpable(t *testing.T, pid int) {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("process %d is dumpable, or its memory is of another user namespace: its files in /proc are of user %d", pid, uid)
	}
}

func TestTheHoldersProcIsMaskedAsThatOfAContainerOfContainerds(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		theirs, err := oci.GenerateSpecWithPlatform(c.context(t), nil, "linux/amd64", &containers.Container{ID: "any"})
		if err != nil {
			t.Fatal(err)
		}
		c.startBox(t, nil)
		bundles, err := filepath.Glob(filepath.Join(dataDir(c.daemon.Dir()), "pods/run/*/sandbox/holder/config.json"))
		if err != nil || len(bundles) == 0 {
			t.Fatalf("no bundle of a holder (%v)", err)
		}
		var ours specs.Spec
		if err := json.Unmarshal([]byte(read(t, bundles[0])), &ours); err != nil {
			t.Fatal(err)
		}
		inProc := func(paths []string) []string {
			below := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !strings.HasPrefix(p, "/proc/") })
			return slices.Sorted(slices.Values(below))
		}
		if want, got := inProc(theirs.Linux.MaskedPaths), inProc(ours.Linux.MaskedPaths); !slices.Equal(got, want) {
			t.Errorf("masked are %q, want %q", got, want)
		}
		if want, got := inProc(theirs.Linux.ReadonlyPaths), inProc(ours.Linux.ReadonlyPaths); !slices.Equal(got, want) {
			t.Errorf("read-only are %q, want %q", got, want)
		}
	})
}
