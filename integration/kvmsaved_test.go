package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// savedMachines returns the directories of saved machines.
func savedMachines(t *testing.T) []string {
	t.Helper()
	if os.Getenv("RKT_TEST_SAVED") == "" {
		t.Skip("machines are not saved: RKT_TEST_SAVED=1")
	}
	files, err := filepath.Glob(filepath.Join(machines.Saved(suite.dir), "*", "memory"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = filepath.Dir(f)
	}
	return files
}

// restored reports whether the machine of a pod was restored.
func (l *life) restored(t *testing.T) bool {
	t.Helper()
	return strings.Contains(read(t, fmt.Sprintf("/proc/%d/cmdline", l.child(t, "qemu-system"))), "\x00-incoming\x00")
}

// The machines of three pods have one past. Nothing that they draw or tell may show it.
func TestRestoredMachinesHaveTimesAndRandomNumbersOfTheirOwn(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		savedMachines(t)
		c.life(t) // saves a machine, if there is none
		seen := map[string]string{}
		for n := range 3 {
			l := c.life(t)
			if !l.restored(t) {
				t.Errorf("machine %d was not restored: %s", n, read(t, filepath.Join(l.dir, "stage1/rootfs/rkt/kvm.log")))
			}
			task := l.tasks[0].ID()
			for what, command := range map[string]string{
				"random bytes":      "head -c 16 /dev/urandom | od -An -tx1",
				"a UUID":            "cat /proc/sys/kernel/random/uuid",
				"the boot's id":     "cat /proc/sys/kernel/random/boot_id",
				"a program's stack": "grep stack /proc/self/maps",
			} {
				text := c.exec(t, nil, task, "sh", "-c", command).must(t).stdout
				if of, known := seen[what+text]; known || len(strings.TrimSpace(text)) < 10 {
					t.Errorf("%s of machine %d, and of %s: %s", what, n, of, text)
				}
				seen[what+text] = fmt.Sprint("machine ", n)
			}
			began := time.Now()
			text := c.exec(t, nil, task, "date", "+%s").must(t).stdout
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if now := time.Unix(seconds, 0); err != nil || now.Before(began.Add(-2*time.Second)) || now.After(time.Now().Add(2*time.Second)) {
				t.Errorf("between %s and %s machine %d has %s", began, time.Now(), n, text)
			}
		}
	})
}

// A saved machine from which none can be restored stands in the way of one pod at the most.
func TestASavedMachineThatDoesNotWakeIsForgotten(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		savedMachines(t)
		c.life(t)
		saved := savedMachines(t)
		if len(saved) == 0 {
			t.Fatal("no machine is saved")
		}
		for _, dir := range saved {
			spoil(t, filepath.Join(dir, "memory"))
		}
		if _, err := c.container(t, []string{"true"}).NewTask(c.context(t), cio.NullIO); err == nil {
			t.Error("a pod has a machine whose agent cannot wake")
		}
		if got := savedMachines(t); len(got) > 0 {
			t.Errorf("%q are saved", got)
		}
		l := c.life(t)
		if l.restored(t) {
			t.Error("the next machine was restored")
		}
		wait.Until(t, "it is saved", func() bool { return len(savedMachines(t)) == 1 })
	})
}

// spoil has the agent in the memory of a machine look for another file than /dev/urandom, which it opens when it wakes. QEMU
// finds nothing wrong with the machine.
func spoil(t *testing.T, memory string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "grep", "--only-matching", "--byte-offset", "--text", "--fixed-strings", "/dev/urandom", memory).Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(memory, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for line := range strings.Lines(string(out)) {
		at, _, _ := strings.Cut(line, ":")
		offset, err := strconv.ParseInt(at, 10, 64)
		if err == nil {
			_, err = f.WriteAt([]byte("/dev/nothing"), offset)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
