package enclosure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// testsVariable marks the process that runs the tests.
const testsVariable = "RKT_ENCLOSED_TESTS"

// guestVariable is set if the tests have the whole machine to themselves, as in the guest of
// integration/vm. They then need no enclosure, which would hide systemd.
const guestVariable = "RKT_TEST_GUEST"

// InGuest reports whether the tests have a machine to themselves.
func InGuest() bool { return os.Getenv(guestVariable) != "" }

// Tests runs the tests of a package in an enclosure. The package's test program is executed
// three times: by the go command; as the first process of the enclosure, which reaps orphans;
// and by that process, to run the tests.
type Tests struct {
	Name string // of the package
	// Missing returns the reason why the tests cannot run on this machine, or an empty string.
	// If there is a reason, the tests run outside, where they report it.
	Missing func() string
	// Fill copies the programs into the enclosure, because their own directories may be covered
	// there.
	Fill func(context.Context, Enclosure) error
	// Run runs the tests inside.
	Run func(*testing.M) (int, error)
	// After, which may be nil, is called outside before the enclosure's files are removed.
	After func(context.Context, Enclosure) error
}

// Main is called by TestMain. It exits.
func (t Tests) Main(m *testing.M) {
	var code int
	var err error
	switch {
	case os.Getenv(testsVariable) != "":
		code, err = t.Run(m)
	case Inside():
		code, err = t.enter()
	case t.Missing() != "":
		code = m.Run()
	case InGuest():
		if err = t.Fill(context.Background(), Enclosure{}); err == nil {
			code, err = t.Run(m)
		}
	default:
		code, err = t.enclose(context.Background())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name, err)
		code = 1
	}
	os.Exit(code)
}

// enclose runs outside: it makes the enclosure.
func (t Tests) enclose(ctx context.Context) (code int, err error) {
	dir, err := os.MkdirTemp("", "rkt-"+t.Name+"-")
	if err != nil {
		return 1, err
	}
	defer func() {
		if os.Getenv("RKT_TEST_KEEP") != "" {
			fmt.Fprintln(os.Stderr, "the enclosure's files are in", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	e := Enclosure{Dir: dir, Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr}
	if err := e.Prepare(); err != nil {
		return 1, err
	}
	if err := t.Fill(ctx, e); err != nil {
		return 1, err
	}
	if code, err = e.Run(ctx); err != nil || t.After == nil {
		return code, err
	}
	return code, t.After(ctx, e)
}

// enter runs in the first process of the enclosure.
func (t Tests) enter() (code int, err error) {
	if err := enter(); err != nil {
		return 1, err
	}
	wd, err := os.Getwd()
	if err == nil {
		_, err = os.Stat(wd)
	}
	if err != nil {
		wd = "/" // the directory of the tests is covered
	}
	if err := AddPrograms(); err != nil {
		return 1, err
	}
	return again(t.Name+".test", testsVariable, wd)
}
