package hold

import (
	"os"
	"path/filepath"
)

// programMode lets every user execute the holder's program, and none read it. From the
// exec on the kernel therefore keeps the process undumpable. Its memory belongs to a
// user namespace that maps the file's owner: to the host's, unless the pod's namespace
// maps the host's root.
const programMode = 0o111

// Fill fills the root file system of a holder: the program, and the mount points. Every user
// may enter the directory, whatever the umask.
func Fill(root string, program []byte) error {
	for _, d := range []string{root, filepath.Join(root, "proc"), filepath.Join(root, "dev")} {
		if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
			return err
		}
		if err := os.Chmod(d, 0o755); err != nil {
			return err
		}
	}
	hold := filepath.Join(root, "hold")
	if err := os.WriteFile(hold, program, programMode); err != nil {
		return err
	}
	return os.Chmod(hold, programMode)
}
