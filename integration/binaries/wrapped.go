package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Wrap makes an image of the stage1 oci for another OCI runtime, as the README of oci
// describes, in the directory bin that `make build` fills. It also makes the link of the
// runtime io.containerd.rkt-NAME.v1, which pins the image. line has the runtime's path and its
// flags.
func Wrap(ctx context.Context, bin, name, line string) error {
	image := filepath.Join(bin, "stage1", name)
	if out, err := exec.CommandContext(ctx, "cp", "-aT", filepath.Join(bin, "stage1/oci"), image).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the image: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(image, "rootfs/runtimes"), []byte(line+"\n"), 0o644); err != nil {
		return err
	}
	err := os.Symlink("containerd-shim-rkt-v1", filepath.Join(bin, "containerd-shim-rkt-"+name+"-v1"))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}
