package hold

import (
	"os"
	"path/filepath"
)

// programMode lets everybody execute the holder's program and nobody read it. From the
// exec on the kernel then keeps the process undumpable, and its memory the property of a
// user namespace that has the file's owner: the host's, for every pod whose namespace
// does not map the host's root.
const programMode = 0o111

// Fill makes a directory the root file system of a holder: its program, and what to
// mount on. Whatever the umask, any user may enter it.
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
