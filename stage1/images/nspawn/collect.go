package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// propagated is the directory in which systemd-nspawn makes an empty directory for each
// container. systemd-nspawn does not remove these.
const propagated = "/run/systemd/nspawn/propagate"

// collect removes directories and cgroups outside of a pod whose supervisor was killed. It
// returns an exit code.
func collect(pod string) int {
	left, err := filepath.Glob(filepath.Join(propagated, "rkt-"+pod+"-*"))
	for _, dir := range left {
		if rmErr := os.Remove(dir); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // stderr is the error pipe
		return 1
	}
	return 0
}
