package integration

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// client16 is the program of containerd 1.6's Go client, built once.
var client16 = sync.OnceValues(func() (string, error) {
	return binaries.Client16(context.Background(), suite.dir)
})

// runBy16 runs a program in a container, as a client of containerd 1.6 with
// options: its messages and the Any around them are gogo's.
func (c *column) runBy16(t *testing.T, options, as string, args ...string) result {
	t.Helper()
	client, err := client16()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	all := append([]string{
		"-address", c.daemon.Address(), "-namespace", c.daemon.Namespace(), "-runtime", c.runtime, "-image", image.BusyboxName,
		"-id", c.id(), "-fifo-dir", fifoDir(c.daemon.Dir()), "-options", options, "-as", as,
	}, args...)
	cmd := exec.CommandContext(ctx, client, all...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the code says it
	return result{args: append([]string{filepath.Base(client)}, all...), stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

func TestO1AClientOfContainerd16IsUnderstood(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		owner := []string{"stat", "-L", "-c", "%u:%g", "/proc/self/fd/1"}
		c.runBy16(t, "none", "runtime", owner...).must(t).mustSay(t, "0:0\n")
		for _, as := range []string{"runtime", "task", "google"} {
			// The user is the process's own, whatever the pipe's was; the group
			// is the option's.
			c.runBy16(t, "runc", as, owner...).must(t).mustSay(t, "0:50\n")
		}
		c.runBy16(t, "config", "runtime", "testprog", "exit", "42").mustExit(t, 42)
	})
}

func TestO1OptionsOfAnUnknownTypeAreRefusedByName(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		r := c.runBy16(t, "other", "runtime", "true")
		if r.code != 125 || !strings.Contains(r.stderr, "containerd.linux.runc.CreateOptions") {
			t.Errorf("code %d, %q", r.code, r.stderr)
		}
	})
}
