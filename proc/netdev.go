package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Interface has the kernel's counters of a network interface.
type Interface struct {
	Name     string
	Receive  Traffic
	Transmit Traffic
}

// Traffic has the counters of one direction.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// Interfaces returns the network interfaces that a process sees, without the loopback.
func Interfaces(pid int) ([]Interface, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return nil, err
	}
	return parseNetDev(string(text)), nil
}

// parseNetDev reads lines of a name and sixteen numbers, eight for each direction. It skips
// other lines, such as the heading.
func parseNetDev(text string) (list []Interface) {
	const perDirection = 8
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(words) < 2*perDirection {
			continue
		}
		list = append(list, Interface{Name: name, Receive: traffic(words), Transmit: traffic(words[perDirection:])})
	}
	return list
}

func traffic(words []string) Traffic {
	n := func(i int) uint64 {
		v, _ := strconv.ParseUint(words[i], 10, 64) // the kernel writes numbers
		return v
	}
	return Traffic{Bytes: n(0), Packets: n(1), Errors: n(2), Dropped: n(3)}
}
