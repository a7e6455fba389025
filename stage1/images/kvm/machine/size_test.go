package machine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestProcessorsAndMemoryAreAddedAndTakenBack(t *testing.T) {
	c, g := config(t)
	const initial, most = 256 << 20, 512 << 20
	c.MaxCPUs, c.MaxMemory = 3, most
	boot(t, c, g)
	if got := g.ask("load", "virtio_mem"); got != "" {
		t.Fatal(got)
	}
	before := memory(t, g)
	if before < 200<<10 {
		t.Errorf("of 256 MiB the guest has %d kB, as if it kept memory for old devices", before)
	}
	if err := g.Resize(t.Context(), 3, most); err != nil {
		t.Fatal(err)
	}
	size := func(wantCPUs int, wantMemory int64) func() (bool, string) {
		return func() (bool, string) {
			cpus, memory, err := g.Size(t.Context())
			return cpus == wantCPUs && memory == wantMemory, fmt.Sprint(cpus, " processors, ", memory>>20, " MiB: ", err)
		}
	}
	wait.Observe(t, "the guest has the memory", size(3, most))
	wait.Observe(t, "the guest uses the memory", func() (bool, string) {
		now := memory(t, g)
		return now > before+200<<10, fmt.Sprint(now, " kB, before ", before)
	})
	for n := 1; n < 3; n++ {
		online := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", n)
		wait.Until(t, "the guest has the processor", func() bool { return g.ask("write", online, "1") == "" })
	}
	if got := g.ask("read", "/sys/devices/system/cpu/online"); got != "0-2\n" {
		t.Errorf("online are %q", got)
	}
	for _, n := range []string{"1", "2"} {
		if got := g.ask("write", "/sys/devices/system/cpu/cpu"+n+"/online", "0"); got != "" {
			t.Error(got)
		}
	}
	if err := g.Resize(t.Context(), 1, initial); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "the guest has given the memory up", size(3, initial))
	if got := g.ask("read", "/sys/devices/system/cpu/online"); got != "0\n" {
		t.Errorf("online are %q", got)
	}
	if err := g.Resize(t.Context(), 3, initial+64<<20); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "the guest has other memory", size(3, initial+64<<20))
	for _, wrong := range []struct {
		cpus   int
		memory int64
	}{{0, initial}, {4, initial}, {1, initial - 1}, {1, most + 2<<20}, {1, initial + 1}} {
		if err := g.Resize(t.Context(), wrong.cpus, wrong.memory); err == nil {
			t.Errorf("resized to %v", wrong)
		}
	}
}

// memory returns how much memory the guest has, in kB.
func memory(t *testing.T, g *guest) (kB int64) {
	t.Helper()
	for line := range strings.Lines(g.ask("read", "/proc/meminfo")) {
		if n, err := fmt.Sscanf(line, "MemTotal: %d kB", &kB); n == 1 && err == nil {
			return kB
		}
	}
	t.Fatal("the guest does not know its memory")
	return 0
}
