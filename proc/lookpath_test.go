package proc_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestAProgramIsLookedForInTheWordsOfOSExec(t *testing.T) {
	check := func(path string) error {
		switch path {
		case "/bin/sh", "./sh":
			return nil
		case "/sbin/sh", "/sbin/secret":
			return fs.ErrPermission
		}
		return fs.ErrNotExist
	}
	dirs := []string{"/absent", "/sbin", "/bin"}
	for name, want := range map[string]struct{ path, err string }{
		"sh":       {"/bin/sh", ""},
		"./sh":     {"./sh", ""},
		"/sbin/sh": {"", `exec: "/sbin/sh": permission denied`},
		"/x/sh":    {"", `exec: "/x/sh": file does not exist`},
		"secret":   {"", `exec: "secret": permission denied`},
		"no":       {"", `exec: "no": executable file not found in $PATH`},
	} {
		path, err := proc.LookPath(name, dirs, check)
		if path != want.path || err == nil && want.err != "" || err != nil && err.Error() != want.err {
			t.Errorf("%s: %q, %v; want %+v", name, path, err, want)
		}
	}
	if _, err := proc.LookPath("secret", dirs, check); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}
