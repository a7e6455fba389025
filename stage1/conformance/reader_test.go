package conformance_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readUntil calls rktctl with a pipe that holds one write at a time, and closes the pipe once a
// write has contained a word. It returns what rktctl writes to stderr.
func readUntil(t *testing.T, tmp, word string, args ...string) (stderr string, code int) {
	t.Helper()
	var ends [2]int
	must(t, unix.Pipe2(ends[:], unix.O_DIRECT|unix.O_CLOEXEC))
	r, w := os.NewFile(uintptr(ends[0]), "read"), os.NewFile(uintptr(ends[1]), "write")
	defer r.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), rktctl(t), append([]string{"stage1", "verify"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	must(t, cmd.Start())
	w.Close()
	for b := make([]byte, os.Getpagesize()); ; {
		n, err := r.Read(b)
		if err != nil {
			t.Errorf("no %q in the output: %v", word, err)
			break
		}
		if strings.Contains(string(b[:n]), word) {
			break
		}
	}
	r.Close()
	_ = cmd.Wait()
	return errs.String(), cmd.ProcessState.ExitCode()
}

const notRead = "the output is not read any more"

// rktctl stage1 verify IMAGE | head -n 3, where the summary is the rest.
func TestAReaderWhoLeavesDuringTheSummaryIsNamed(t *testing.T) {
	t.Parallel()
	tmp := reachable(t)
	words, code := readUntil(t, tmp, "# stage1 native", "--run", "run/ready", bundledImage(t, "native"))
	if code != 1 || !strings.Contains(words, notRead) || strings.Contains(words, "context canceled") {
		t.Errorf("code %d, %q", code, words)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The result that names the files may be the one that was not read.
func TestAReaderWhoLeavesLearnsWhereTheFilesOfFailedChecksAre(t *testing.T) {
	t.Parallel()
	tmp := reachable(t)
	dir := broken{entry: "app_rm", body: `fail "who is $RKT_APP?" 5`}.image(t)
	words, code := readUntil(t, tmp, "not ok 1", "--keep", "--run", "app-rm/unknown", "--run", "crash/", dir)
	kept, _ := filepath.Glob(filepath.Join(tmp, "*"))
	if code != 1 || len(kept) != 1 || !strings.Contains(words, notRead) || !strings.Contains(words, "the files of failed checks are in "+kept[0]) {
		t.Errorf("code %d, left %q: %q", code, kept, words)
	}
}
