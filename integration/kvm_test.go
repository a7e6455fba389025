package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

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
		"TestAVMIsInItsPodsCgroupAlsoWithoutOneOfTheDevices",
		"TestRestoredMachinesHaveTimesAndRandomNumbersOfTheirOwn",
		"TestASavedMachineThatDoesNotWakeIsForgotten",
		"TestAMachine",
		"TestProcessesOfAVMHaveTheLimitsThatRuncsHave",
		"TestContainersComeAndGoInAMachine",
		"TestAMachineHasAnImageAsTheRootOfAContainer",
		"TestADiskThatCannotBeWrittenBackIsTakenBack",
		"TestSIGTERMOfAShutdownHasAVMWriteItsDisks",
		"TestImagesOfErofsAreReadOnlyRoots",
		"TestARootIsAnOverlayOfImages",
		"TestAMachineHasTheBlockDevicesOfItsContainersAndNoOthers",
		"TestAMachineReadsWhatWasWrittenToItsVolumesAMomentBefore",
		"TestAMachineHasTheGroupsAndListsOfAccessOfItsVolumes",
		"TestAMachineFollowsTheClockOfItsHost",
		"TestAMachineHasTheAddressesOfItsNetworkNamespace",
		"TestAMachineHasTheAddressesThatItsNamespaceGetsBeforeStart",
		"TestANetworkThatAMachineCannotHaveIsRefusedByName",
		"TestTheSizeOfAMachineFollowsTheLimitsOfItsContainers",
		"TestASizeThatAMachineCannotHaveIsRefusedWithItsReason",
		"TestWhatTheFirstContainerAsksForIsRefusedBeforeItsVMBoots",
		"TestAVMWithoutAKernelSaysHowToGetOne",
		"TestAMicroVMHasWhatItBootsWithAndRefusesTheRestByName",
		"TestAMicroVMDoesNotStartWithoutTheNetworkThatItGetsTooLate",
		"TestAMachineOfAnUnknownTypeIsRefused",
		"TestUserNamespacesAndIDMappedMountsAreWhatInfoSays",
		"TestAContainerOfAMachineOwnsItsCgroup",
		"TestAMachineHasAUserNamespace",
		"TestAMachineWithoutAUserNamespaceGetsNoneLater",
		"TestAUserNamespaceMayHoldTheUserZeroOfItsMachine",
		"TestNerdctlRunInTheForeground",
		"TestNerdctlShowsWhyAProgramCannotBeExecuted",
		"TestNerdctlWorksWithAContainer",
		"TestNerdctlAttachesANetworkByItsHooks",
		"TestNerdctlAtATerminal",
		"TestNerdctlRestartPolicies",
	}
}

// TestAMachine looks at one machine, because each takes seconds to boot.
func TestAMachine(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		host, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			t.Fatal(err)
		}
		volume := t.TempDir()
		below := filepath.Join(volume, "below")
		if err := errors.Join(os.Mkdir(below, 0o755), syscall.Mount("tmpfs", below, "tmpfs", 0, "size=1m"), os.WriteFile(filepath.Join(below, "file"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(below, syscall.MNT_DETACH) })
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
		if source := c.exec(t, nil, id, "cat", "/sys/class/misc/hw_random/rng_current").must(t).stdout; source != "virtio_rng.0\n" {
			t.Errorf("the kernel of the machine takes random numbers from %q", source)
		}
		// The host can remove a directory on which something was mounted below a volume, as with runc.
		c.exec(t, nil, id, "cat", "/volume/below/file").must(t)
		if err := errors.Join(syscall.Unmount(below, 0), os.Remove(below)); err != nil {
			t.Errorf("while the machine has the volume: %v", err)
		}
		wait.Until(t, "the machine sees that the directory was removed", func() bool { return c.exec(t, nil, id, "cat", "/volume/below/file").code != 0 })
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

// The guest still knows the files of some containers when their successors come, and the machine has to
// undo those whose Create fails.
func TestContainersComeAndGoInAMachine(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		times := 10
		if *longFlag {
			times = 150
		}
		for n := range times {
			container := c.container(t, []string{"/etc"}, group(name))
			if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "is a directory") {
				t.Fatalf("%d: a directory is executed: %v", n, err)
			}
			if err := container.Delete(c.context(t), containerd.WithSnapshotCleanup); err != nil {
				t.Fatal(err)
			}
			task := c.task(t, []string{"sh", "-c", "test -d /proc/1 && test -e /etc/not-executable && exit 5"}, group(name))
			exited := c.wait(t, task)
			if err := task.Start(c.context(t)); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 5)
			c.drop(t, task)
		}
	})
}

// The host's clock is kept by NTP, and a machine has none.
func TestAMachineFollowsTheClockOfItsHost(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithAddedCapabilities([]string{"CAP_SYS_TIME"}))
		off := func() time.Duration {
			t.Helper()
			text := c.exec(t, nil, task.ID(), "date", "+%s").must(t).stdout
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(time.Unix(seconds, 0)).Abs()
		}
		c.exec(t, nil, task.ID(), "sh", "-c", `date -s @$(($(date +%s) - 3600))`).must(t)
		if o := off(); o < 50*time.Minute {
			t.Errorf("the clock was set an hour back, and is off by %s", o)
		}
		wait.ObserveWithin(t, 3*time.Minute, "the clock is right", func() (bool, string) {
			o := off()
			return o < 5*time.Second, o.String()
		})
		c.killAndDrop(t, task)
	})
}
