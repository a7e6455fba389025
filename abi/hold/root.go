package hold

import (
	"os"
	"path/filepath"
)

// programMode allows every user to execute the holder's program, and no user to read it. So
// the exec makes the process undumpable, and a process that wants to trace the holder needs
// privileges over a user namespace that maps the file's owner, the host's root. That is the
// host's user namespace, unless the pod has one that maps the host's root.
const programMode = 0o111

// Fill makes the files in the root of a holder: the program, and the mount points. Every
// user may enter the directory, independent of the umask.
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
