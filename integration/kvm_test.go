package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// ofMachines are the cases that run with the stage1 kvm. A case that looks at the cgroup or the
// namespaces of a container's process on the host finds those of its proxy.
func ofMachines() []string {
	return []string{
		"TestRunReturnsTheExitCodeOfTheProgram",
		"TestRunReturns128PlusTheSignalThatEndedTheProgram",
		"TestRunHandsStdinToTheProgramUpToItsEnd",
		"TestAProgramThatCannotBeExecutedFailsCreateAndLeavesNothing",
		"TestRunAtATerminal",
		"TestExecAtATerminal",
		"TestExecLifecycle",
		"TestPauseAndResume",
		"TestKillAllReachesEveryProcessWithAnySignal",
		"TestMetricsOfARunningAndOfADeletedTask",
		"TestAnOOMIsPublishedBeforeTheExitThatItCaused",
		"TestContainersOfOneGroupShareAShim",
		"TestTheDeathOfTheShimLeavesNothingAndTellsTrueExitCodes",
		"TestHoweverAMachineEndsItsContainersHave137AndNothingIsLeft",
		"TestDeleteAloneRemovesAPodWhoseShimAndMachineWereKilled",
		"TestAMachineWithoutMemoryEndsOneContainer",
		"TestAMachine",
		"TestAMachineHasAnImageAsTheRootOfAContainer",
		"TestImagesOfErofsAreReadOnlyRoots",
		"TestAMachineHasTheBlockDevicesOfItsContainersAndNoOthers",
		"TestAMachineHasTheAddressesOfItsNetworkNamespace",
		"TestAMachineHasTheAddressesThatItsNamespaceGetsBeforeStart",
		"TestANetworkThatAMachineCannotHaveIsRefusedByName",
		"TestTheSizeOfAMachineFollowsTheLimitsOfItsContainers",
		"TestASizeThatAMachineCannotHaveIsRefusedWithItsReason",
		"TestNerdctlRunInTheForeground",
		"TestNerdctlShowsWhyAProgramCannotBeExecuted",
		"TestNerdctlWorksWithAContainer",
		"TestNerdctlAttachesANetworkByItsHooks",
		"TestNerdctlAtATerminal",
	}
}

// kvmConfiguration makes a stage1 kvm with the kernel of `make kvm`, and returns the configuration
// of a shim that has it.
func kvmConfiguration() (string, error) {
	bin := suite.shims
	kernel := filepath.Join(bin, "kvm")
	if _, err := os.Stat(filepath.Join(kernel, "vmlinux")); err != nil {
		return "", errors.Join(errors.New("the column kvm needs what `make kvm` builds"), err)
	}
	image := filepath.Join(suite.dir, "kvm-image")
	if err := os.CopyFS(image, os.DirFS(filepath.Join(bin, "stage1/kvm"))); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(kernel, "SHA256SUMS"))
	if err != nil {
		return "", err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	settings, err := json.Marshal(map[string]any{
		"kernel": filepath.Join(kernel, "vmlinux"), "kernelSum": sums["vmlinux"],
		"modules": filepath.Join(kernel, "modules"), "modulesSum": sums["modules"], "accel": "tcg",
		"maxCPUs": 3,
	})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(image, "rootfs/kvm.json"), settings, 0o644); err != nil {
		return "", err
	}
	file := filepath.Join(suite.dir, "kvm.toml")
	return file, os.WriteFile(file, fmt.Appendf(nil, "[stage1.kvm]\npath = %q\n", image), 0o600)
}

// TestAMachine looks at one machine, because each takes seconds to boot.
func TestAMachine(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		host, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			t.Fatal(err)
		}
		volume := t.TempDir()
		id := c.start(t, []string{"--mount", "type=bind,src=" + volume + ",dst=/volume,options=rbind:rw"}, "testprog", "sleep", "1000")
		report := parseReport(t, c.exec(t, nil, id, "testprog", "inspect").must(t).stdout)
		if report.Kernel == "" || report.Kernel == strings.TrimSpace(string(host)) {
			t.Errorf("the kernel of the machine is %q, that of the host %q", report.Kernel, host)
		}
		if m := report.Mounts["/volume"]; m.Type != "virtiofs" {
			t.Errorf("the volume is %+v", m)
		}
		if _, ok := report.Mounts["/shared"]; ok || report.Status["NoNewPrivs"] != "1" || len(report.Cgroup) != 1 || !strings.HasPrefix(report.Cgroup[0], "0::/") {
			t.Errorf("the process is %+v", report)
		}
		// A volume is updated as the kubelet updates a ConfigMap: by replacing a link.
		publish := func(text string) {
			t.Helper()
			dir := filepath.Join(volume, text)
			link := filepath.Join(volume, "..new")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "key"), []byte(text), 0o644),
				os.Symlink(text, link), os.Rename(link, filepath.Join(volume, "..data"))); err != nil {
				t.Fatal(err)
			}
		}
		publish("one")
		publish("two")
		read := func() string { return c.exec(t, nil, id, "cat", "/volume/..data/key").must(t).stdout }
		if text := read(); text != "two" {
			t.Errorf("the volume has %q", text)
		}
		publish("three")
		wait.Until(t, "the machine sees the change of its volume", func() bool { return read() == "three" })
		// The host sees a root by its proxy. What it changes there, the machine sees when it looks at the file
		// again, although it keeps the files of roots in its memory.
		pid, _ := c.status(t, id)
		for _, text := range []string{"first", "second"} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/changed", pid), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the machine sees the change of its root", func() bool {
				r := c.exec(t, nil, id, "cat", "/changed")
				return r.code == 0 && r.stdout == text
			})
		}
		// The machine ends with the server of its files, and every app of it has 137.
		virtiofsd := processesWith(t, "virtiofsd", c.daemon.Dir())
		if len(virtiofsd) == 0 {
			t.Fatal("there is no virtiofsd")
		}
		if err := syscall.Kill(virtiofsd[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the container has stopped", func() bool {
			_, state := c.status(t, id)
			return state == "STOPPED"
		})
		if r := c.ctr(t, "task", "delete", id); !strings.Contains(r.stderr, "exit code 137") {
			t.Errorf("the exit code is not 137: %s", r.stderr)
		}
	})
}

// processesWith returns the pids of processes whose command lines have all of some words.
func processesWith(t *testing.T, words ...string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
files:
	for _, f := range files {
		line, _ := os.ReadFile(f) // the process may have ended
		for _, w := range words {
			if !strings.Contains(string(line), w) {
				continue files
			}
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
