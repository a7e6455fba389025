package cri

import (
	"os"
	"syscall"
	"testing"
)

// owner returns the user and group of a file of the node.
func owner(t *testing.T, file string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}
