package conformance

import (
	"fmt"
	"os"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// stuck describes where the processes of the running check are: those of an entrypoint that does not
// answer, and those that it may be waiting for.
func stuck() string {
	var b strings.Builder
	for _, pid := range descendants() {
		st, err := proc.ReadStat(pid)
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "\nprocess %d of %d (%.80s) %c", pid, st.Parent, commandOf(pid), st.State)
		for _, name := range []string{"wchan", "syscall", "stack"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			if words := strings.Join(strings.Fields(string(text)), " "); err == nil && words != "" && words != "0" {
				fmt.Fprintf(&b, "; %s %.200s", name, words)
			}
		}
	}
	return b.String()
}
