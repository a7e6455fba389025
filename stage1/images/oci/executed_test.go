package oci

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The script reads the name of a process and then its command line. If the process is crun at
// first, and executes its program and ends before the second read, the program was executed. If
// the process ends as crun, the program was not executed.
func TestAProgramThatEndsWhileItIsLookedAtWasExecuted(t *testing.T) {
	lib, err := filepath.Abs("rootfs/lib.sh")
	if err != nil {
		t.Fatal(err)
	}
	crun := filepath.Join(t.TempDir(), "crun")
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(crun, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for last, want := range map[string]string{"exec busybox true": "executed", "exit 1": "not executed"} {
		t.Run(want, func(t *testing.T) {
			defer children.Expect()()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			// The parent is sleep, because sleep does not reap the process.
			parent := exec.Command("bash", "-c", `(exec -a busybox "$0" sh -c "read line; $1" <&3) & echo $!; exec 3<&-; exec sleep 1000`, crun, last)
			parent.ExtraFiles = []*os.File{r}
			stdout, err := parent.StdoutPipe()
			if err == nil {
				err = parent.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = parent.Process.Kill(); _ = parent.Wait() }()
			var pid int
			if _, err := fmt.Fscan(stdout, &pid); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the process is called crun", func() bool {
				comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				return err == nil && string(comm) == "crun\n"
			})
			// When the script looks at the command line, it first lets the process go on
			// and end.
			sh := exec.Command("sh", "-c", fmt.Sprintf(`. %s
grep() { echo >&9; exec 9>&-; while look %[2]d && [ "$how" != Z ]; do sleep 0.05; done; return 1; }
executed %[2]d && echo executed || echo not executed`, lib, pid))
			sh.Env = append(os.Environ(), "RKT_STAGE1_REQUEST=/dev/null", "RKT_ERROR_FD=2")
			sh.ExtraFiles = []*os.File{6: w}
			sh.Stderr = os.Stderr
			out, err := sh.Output()
			w.Close()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}
