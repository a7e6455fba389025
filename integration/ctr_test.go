package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// result is the result of a call of ctr.
type result struct {
	args   []string
	stdout string
	stderr string
	code   int
}

// ctr calls ctr and returns the result, also of a failed call.
func (c *column) ctr(t *testing.T, args ...string) result {
	t.Helper()
	return c.ctrWith(t, nil, args...)
}

func (c *column) ctrWith(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	cmd := c.daemon.Ctr(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("ctr %s: %v", strings.Join(args, " "), err)
	}
	if _, flag, unknown := strings.Cut(stderr.String(), "flag provided but not defined: "); unknown && c.release.old {
		t.Skipf("ctr of containerd %s has no flag %s", c.release.name, strings.TrimSpace(flag))
	}
	return result{args: args, stdout: stdout.String(), stderr: withoutWarnings(stderr.String()), code: cmd.ProcessState.ExitCode()}
}

// withoutWarnings removes the warnings that ctr prints on machines with cgroup v1.
func withoutWarnings(stderr string) string {
	var kept []string
	for _, l := range strings.SplitAfter(stderr, "\n") {
		if !strings.Contains(l, "cgroup v1") && !strings.Contains(l, "cgroups v1") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "")
}

// run calls `ctr run` with flags, before the image, and the program's arguments.
func (c *column) run(t *testing.T, flags []string, id string, args ...string) result {
	t.Helper()
	return c.ctr(t, c.runArgs(flags, id, args...)...)
}

func (c *column) runArgs(flags []string, id string, args ...string) []string {
	all := append([]string{"run", "--runtime", c.runtime, "--fifo-dir", c.fifoDir(flags)}, flags...)
	return append(append(all, image.BusyboxName, id), args...)
}

// fifoDir is the directory in which ctr makes the fifos of a call with flags. A ctr that
// detaches does not remove them; that is not a leak of the shim.
func (c *column) fifoDir(flags []string) string {
	if slices.Contains(flags, "-d") {
		return filepath.Join(c.daemon.Dir(), "detached")
	}
	return fifoDir(c.daemon.Dir())
}

// must fails the test unless the call ended with code 0.
func (r result) must(t *testing.T) result {
	t.Helper()
	return r.mustExit(t, 0)
}

func (r result) mustExit(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("ctr %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, code, r.stdout, r.stderr)
	}
	return r
}

// mustContain checks that the output has a text.
func (r result) mustContain(t *testing.T, want string) result {
	t.Helper()
	if !strings.Contains(r.stdout, want) {
		t.Errorf("%s: no %q in\n%s%s", strings.Join(r.args, " "), want, r.stdout, r.stderr)
	}
	return r
}

// mustSay fails the test unless stdout is want.
func (r result) mustSay(t *testing.T, want string) result {
	t.Helper()
	if r.stdout != want {
		t.Errorf("ctr %s: stdout %q, want %q\nstderr: %s", strings.Join(r.args, " "), r.stdout, want, r.stderr)
	}
	return r
}
