package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyWhatNobodyElseCanWriteIsRead(t *testing.T) {
	const limit = 8
	const others = "can be written by others than root"
	for name, c := range map[string]struct {
		spoil func(path string) error
		want  string // in the error; none if it is empty
	}{
		"a file of root's":             {func(string) error { return nil }, ""},
		"that all may read":            {func(p string) error { return os.Chmod(p, 0o644) }, ""},
		"of the longest that is read":  {func(p string) error { return os.WriteFile(p, []byte("12345678"), 0o600) }, ""},
		"a byte longer":                {func(p string) error { return os.WriteFile(p, []byte("123456789"), 0o600) }, "longer than 8 bytes"},
		"that a group may write":       {func(p string) error { return os.Chmod(p, 0o620) }, others},
		"that all may write":           {func(p string) error { return os.Chmod(p, 0o602) }, others},
		"of another user's":            {func(p string) error { return os.Chown(p, 1234, 0) }, others},
		"a directory":                  {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "is not a file"},
		"a fifo that nobody writes to": {func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)) }, "is not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "another user") && os.Geteuid() != 0 {
				t.Skip("needs root, for owners")
			}
			path := filepath.Join(t.TempDir(), "file")
			if err := errors.Join(os.WriteFile(path, []byte("1234567"), 0o600), c.spoil(path)); err != nil {
				t.Fatal(err)
			}
			text, err := ReadTrusted(path, limit)
			switch {
			case c.want == "" && (err != nil || len(text) < 7):
				t.Errorf("%q, %v", text, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("error %v, want %q and the path", err, c.want)
			}
		})
	}
}
