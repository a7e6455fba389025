package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An operator who names a directory of everybody's reads that in the error of the client.
func TestADataDirectoryOfEverybodysFailsTheContainerWithTheReason(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		n := c.asideNode(t)
		dir := dataDir(n.daemon.Dir())
		must(t, os.MkdirAll(dir, 0o755))
		for _, mode := range []fs.FileMode{0o777, fs.ModeSticky | 0o777} {
			must(t, os.Chmod(dir, mode))
			n.refuses(nil, "data directory (RKT_DATA_DIR sets it): "+dir+" is shared with other users of the host")
			if st, err := os.Stat(dir); err != nil || st.Mode() != fs.ModeDir|mode {
				t.Errorf("the mode is %v, %v", st.Mode(), err)
			}
		}
		must(t, os.Chmod(dir, 0o755))
		id := n.id()
		if record := n.runs(id); !strings.Contains(record, "native") {
			t.Errorf("the record of the pod is %s", record)
		}
		n.ends(id)
		if _, err := os.Stat(filepath.Join(dir, "pods")); err != nil {
			t.Error(err)
		}
	})
}
