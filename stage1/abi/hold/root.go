package hold

import (
	"os"
	"path/filepath"
)

// Fill makes a directory the root file system of a holder: its program, and what to
// mount on. Whatever the umask, any user may read it.
func Fill(root string, program []byte) error {
	paths := []string{root}
	for _, d := range []string{"proc", "dev"} {
		d = filepath.Join(root, d)
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		paths = append(paths, d)
	}
	hold := filepath.Join(root, "hold")
	if err := os.WriteFile(hold, program, 0o755); err != nil {
		return err
	}
	for _, path := range append(paths, hold) {
		if err := os.Chmod(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}
