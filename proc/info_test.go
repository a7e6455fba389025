package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestHowAnothersChildHasEndedIsKnownOnceItWasReaped(t *testing.T) { // trap 3 of rkt's ABI
	for script, want := range map[string]proc.Exit{
		"read x; exit 9":              {Code: 9},
		"read x; kill -KILL $SELF":    {Code: 137, Signal: 9},
		"read x; kill -TERM $SELF; :": {Code: 143, Signal: 15},
		"read x; exit 203":            {Code: 203},
	} {
		// The parent of the process is a shell, which prints a line when it has
		// reaped the process.
		cmd := exec.Command("sh", "-c", `exec 3<&0; SCRIPT=$1 sh -c 'SELF=$$; eval "$SCRIPT"' <&3 & echo $!; wait $! 2>/dev/null; echo reaped; read x <&3`, "sh", script)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		var pid int
		var word string
		if _, err := fmt.Fscanln(lines, &pid); err != nil {
			t.Fatal(err)
		}
		p, err := proc.Open(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := p.Exit(); ok {
			t.Errorf("%s: it has not ended, and %+v is told", script, e)
		}
		_, _ = io.WriteString(in, "go\n")
		if _, err := fmt.Fscanln(lines, &word); err != nil {
			t.Fatal(err)
		}
		got, ok := p.Exit()
		if !ok && !kernelTells(t) {
			t.Log("this kernel does not tell")
		} else if !ok || got.Code != want.Code || got.Signal != want.Signal {
			t.Errorf("%s: %+v, %v; want %+v", script, got, ok, want)
		}
		_ = in.Close()
		_ = p.Close()
		_ = cmd.Wait()
	}
}

// kernelTells reports whether this is Linux 6.15 or later.
func kernelTells(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}
