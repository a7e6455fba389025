package machine_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// memoryOf is the memory in kB of a machine's process on the host.
type memoryOf struct {
	guest  int // the guest's memory
	buffer int // of translated code, with TCG
	kernel int // pages of the kernel's file, which all machines share and the host can drop
	own    int // of no file
	files  int // the program and its libraries: its part of the pages, which others map, too
}

// readMemory reads what a process of a machine has mapped.
func readMemory(t *testing.T, pid int) (m memoryOf) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var mode, path string
	var resident, part int
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) >= 5 && strings.Contains(words[0], "-"):
			mode, path = words[1], strings.Join(words[5:], " ")
		case words[0] == "Rss:":
			_, _ = fmt.Sscan(words[1], &resident)
		case words[0] == "Pss:":
			_, _ = fmt.Sscan(words[1], &part)
		case words[0] == "Anonymous:":
			var own int
			_, _ = fmt.Sscan(words[1], &own)
			switch {
			case path == "/guest": // the only file of its file system
				m.guest += resident
			case mode == "rwxp":
				m.buffer += resident
			case path == "/": // it was unmounted before the guest began
				m.kernel += resident
			default:
				m.own += own
				if resident > own {
					m.files += max(0, part-own)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAMachineNeedsFewMegabytesBesideItsGuest(t *testing.T) {
	c, g := config(t)
	dir := share(t, &c)
	boot(t, c, g)
	var all memoryOf
	for name, pid := range machineProcesses(t, dir, g.PID(), os.Getpid()) {
		m := readMemory(t, pid)
		t.Logf("%s: %+v kB", name, m)
		all.own += m.own
		all.guest = max(all.guest, m.guest)
	}
	if all.own > 40<<10 || all.own == 0 {
		t.Errorf("QEMU and virtiofsd have %d kB of their own", all.own)
	}
	if all.guest > 128<<10 || all.guest == 0 {
		t.Errorf("a guest that has booted uses %d kB", all.guest)
	}
}
