package container

import (
	"os"
	"path/filepath"
	"testing"
)

// The process that executes an app's program still has this stage1's own program.
func TestTheStage1sOwnProgramIsNoProgramOfAnApp(t *testing.T) {
	for _, program := range []string{"/proc/self/exe", "/bin/link", "link"} {
		b := newBox(t, program)
		must(t, os.Symlink("/proc/self/exe", filepath.Join(b.rootfs, "bin/link")))
		got := b.fails()
		contains(t, got, "exec: \""+program+"\": ")
		lacks(t, got, "permission denied")
	}
}
