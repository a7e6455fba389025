package machine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// verify compares a file with its SHA-256 sum in hexadecimal; "" is any file's. It remembers in a
// directory of root's which file had the sum, and does not read that file again until it changes or
// the host is booted: a kernel is large.
func verify(path, sum, memos string) error {
	if sum == "" {
		return nil
	}
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	is, err := identity(path)
	if err != nil {
		return err
	}
	known := boot + " " + sum + " " + is
	// A memo that another process has just begun to write is another text, or none.
	memo := filepath.Join(memos, filepath.Base(path))
	if text, err := os.ReadFile(memo); err == nil && string(text) == known {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if got := fmt.Sprintf("%x", hash.Sum(nil)); got != sum {
		return fmt.Errorf("%s has the SHA-256 sum %s, and should have %s", path, got, sum)
	}
	return errors.Join(os.MkdirAll(memos, 0o700), os.WriteFile(memo, []byte(known), 0o600))
}
