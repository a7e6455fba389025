package rktfront

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Tell writes what rkt's tools wait for: our pid, to a file of the pod's directory, and
// that there is a supervisor.
func Tell(file string) error {
	if err := replace(file, os.Getpid()); err != nil {
		return err
	}
	link := directory + "/supervisor-status"
	if err := os.Symlink("ready", link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Record records an exit of an app or, unless it is empty, an exec: the exit code, or the
// number of the signal.
func Record(app, exec string, status abi.Status) error {
	number := status.Code
	if status.Signal != 0 {
		number = status.Signal
	}
	path := abi.StatusPath(abi.StatusDir, app, exec)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replace(path, number)
}

// replace puts a file with a number in its place at once.
func replace(path string, number int) error {
	tmp := filepath.Join(filepath.Dir(path), ".tmp-"+filepath.Base(path))
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(number)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
