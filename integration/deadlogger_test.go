package integration

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A logger whose shim was killed reads until the container has been killed, too, and then ends.
// A logger that does not end at the end of its input gets SIGTERM. With runc's shim no process
// would send that (requirements.md#I4, requirements.md#D6).
func TestTheDeathOfTheShimEndsItsLoggers(t *testing.T) {
	loggers := map[string]string{
		"that ends with its input": "cat <&3 >>$log",
		"that waits for SIGTERM":   "trap 'kill $!; echo asked >>$log; exit 0' TERM; cat <&3 >>$log; sleep 1000 & wait",
	}
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		logs, programs := map[string]string{}, map[string]string{}
		group := group("group-" + c.id())
		shim := 0
		for name, words := range loggers {
			if c.name == "runc" && name != "that ends with its input" {
				continue
			}
			log := filepath.Join(t.TempDir(), "log")
			logs[name] = log
			program := script(t, "log="+log+"; exec 5>&-; "+words)
			programs[name] = program
			container := c.container(t, []string{"sh", "-c", "echo tick; exec sleep 1000"}, group)
			task := c.newTask(t, container, cio.LogURI(&url.URL{Scheme: "binary", Path: program}))
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			shim = c.shim(t, task.ID())
		}
		for name, log := range logs {
			wait.Observe(t, "the logger "+name+" writes", func() (bool, string) {
				b, err := os.ReadFile(log)
				return string(b) == "tick\n", fmt.Sprintf("%q %v", b, err)
			})
		}
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for name, program := range programs {
			wait.Observe(t, "the logger "+name+" has ended", func() (bool, string) {
				found, err := commandLines(program)
				return err == nil && len(found) == 0, fmt.Sprint(found, err)
			})
		}
		if log := logs["that waits for SIGTERM"]; log != "" && read(t, log) != "tick\nasked\n" {
			t.Errorf("the logger that waits for SIGTERM has written %q", read(t, log))
		}
	})
}
