package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// Kill reaches the program that `enter` has started, not only `enter` itself, whose exit has
// the program's code.
func TestAnExecOfRktsIsKilled(t *testing.T) { // trap 10; checklist 11
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		ctx := n.context(t)
		task := n.aTask(t, cio.NullIO, []string{"testprog", "sleep", "1000"})
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for sig, seconds := range map[syscall.Signal]string{syscall.SIGKILL: "4711", syscall.SIGTERM: "4712"} {
			runs := func() (bool, string) { return running("sleep\x00" + seconds), "" }
			p, exited := n.executes(t, task, cio.NullIO, "runs-"+seconds, "sleep", seconds)
			wait.Observe(t, "the exec runs", runs)
			kill(t, ctx, p, sig)
			expectExit(t, exited, 128+uint32(sig))
			wait.Observe(t, "the exec has ended", func() (bool, string) { yes, s := runs(); return !yes, s })
			deleteTask(t, ctx, p)
		}
		// `enter` may first execute other programs. The end of such a program is not the end of
		// the exec.
		dawdles := filepath.Join(n.fixture.log, "dawdles")
		write(t, dawdles, "")
		for sig, name := range map[syscall.Signal]string{syscall.SIGKILL: "killed-early", syscall.SIGTERM: "told-early"} {
			p, exited := n.executes(t, task, cio.NullIO, name, "sleep", "4718")
			wait.Observe(t, "enter is on its way", func() (bool, string) { return running("sleep\x004719"), "" })
			kill(t, ctx, p, sig)
			expectExit(t, exited, 128+uint32(sig))
			wait.Observe(t, fmt.Sprintf("nothing of the exec outlives signal %d", sig), func() (bool, string) {
				return !running("sleep\x004718") && !running("sleep\x004719"), ""
			})
			deleteTask(t, ctx, p)
		}
		if err := os.Remove(dawdles); err != nil {
			t.Fatal(err)
		}
		n.ends(task.ID())
		n.expectNothingLeft(t)
	})
}
