package proc

import (
	"fmt"
	"os"
	"strings"
)

// IsInit reports whether a process is the first one of a PID namespace below this
// process's. When such a process ends, the kernel kills all others of its namespace.
func IsInit(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(pids)
			return len(f) > 1 && f[len(f)-1] == "1"
		}
	}
	return false
}
