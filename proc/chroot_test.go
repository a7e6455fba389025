package proc_test

import (
	"os"
	"os/exec"
	"testing"
)

// The last script has a root with the same inode as the machine's, on another mount.
func TestAChangedRootIsFound(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change its root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		`exec "$1"`:                 "false",
		`exec chroot / "$1"`:        "false",
		`exec unshare --mount "$1"`: "false",
		`exec unshare --mount sh -ec 'mount --rbind / "$0"; exec chroot "$0" "$1"' "$0" "$1"`: "true",
	} {
		cmd := exec.Command("sh", "-c", script, t.TempDir(), self)
		cmd.Env = append(os.Environ(), "PROC_TEST=chrooted")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %s, %v; want %s", script, out, err, want)
		}
	}
}
