package rktfront

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// tell writes the files for which rkt's tools wait: the pid for `enter`, and the link by
// which a supervisor reports ready.
func tell(pid int) error {
	if err := replace("pid", pid); err != nil {
		return err
	}
	link := directory + "/supervisor-status"
	if err := os.Symlink("ready", link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// record records the exit of an app as rkt does: as the exit code, or as the number of the
// signal.
func record(app string, status abi.Status) error {
	number := status.Code
	if status.Signal != 0 {
		number = status.Signal
	}
	if err := os.MkdirAll(abi.StatusDir, 0o755); err != nil {
		return err
	}
	return replace(abi.StatusPath(abi.StatusDir, app, ""), number)
}

// replace writes a file with a number, by rename.
func replace(path string, number int) error {
	tmp := filepath.Join(filepath.Dir(path), ".tmp-"+filepath.Base(path))
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(number)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
