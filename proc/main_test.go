package proc_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The test binary is its own collection of small programs: PROC_TEST names one.
func TestMain(m *testing.M) {
	switch os.Getenv("PROC_TEST") {
	case "":
		os.Exit(wait.Run(m))
	case "orphan": // print the pid of a grandchild, which outlives us
		cmd := exec.Command("/bin/sh", "-c", os.Getenv("PROC_TEST_SH"))
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Println(cmd.Process.Pid)
		os.Exit(0)
	case "chrooted":
		fmt.Print(proc.IsChrooted())
		os.Exit(0)
	}
}

// newChildren makes the test a subreaper for a while.
func newChildren(t *testing.T) *proc.Children {
	t.Helper()
	if err := proc.SetSubreaper(); err != nil {
		t.Fatal(err)
	}
	c := proc.NewChildren()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// orphan makes a process that becomes a child of the test, and returns its pid.
func orphan(t *testing.T, c *proc.Children, sh string) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child, err := c.Start([]string{"/proc/self/exe"}, &os.ProcAttr{
		Env:   []string{"PROC_TEST=orphan", "PROC_TEST_SH=" + sh, "PATH=/usr/bin:/bin"},
		Files: []*os.File{nil, w, os.Stderr},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32)
	n, _ := r.Read(buf)
	if e := child.Wait(); e.Code != 0 {
		t.Fatalf("the orphan's parent ended with %+v", e)
	}
	pid, err := strconv.Atoi(string(buf[:max(n-1, 0)]))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func start(t *testing.T, c *proc.Children, sh string) *proc.Child {
	t.Helper()
	child, err := c.Start([]string{"/bin/sh", "-c", sh}, &os.ProcAttr{Sys: setpgid()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.KillGroup(); child.Wait() })
	return child
}

func exists(pid int) bool {
	_, err := proc.ReadStat(pid)
	return err == nil
}
