package enclosure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// suiteVariable marks the process that runs a suite in an enclosure.
const suiteVariable = "RKT_ENCLOSED_SUITE"

// Suite is a command that runs a suite of another project in enclosures. Its program is executed
// as the caller's command; as the first process of an enclosure, which reaps orphans; and by that
// process, to run the suite.
type Suite struct {
	Name string // of the command
	Keep bool   // keep the logs of a run without problems, too
	// Outside runs the enclosures. SIGINT and SIGTERM end ctx, and dir is for the logs.
	Outside func(ctx context.Context, dir string) error
	// Environment, which may be nil, prepares the suite's environment in the first process.
	Environment func() error
	// Inside runs the suite.
	Inside func() (code int, err error)
}

// Main exits.
func (s Suite) Main() {
	var code int
	var err error
	switch {
	case os.Getenv(suiteVariable) != "":
		code, err = s.Inside()
	case Inside():
		code, err = s.enter()
	default:
		err = s.outside()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
		code = 1
	}
	os.Exit(code)
}

func (s Suite) outside() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getuid() != 0 {
		return errors.New("containers, mounts and namespaces need root")
	}
	dir, err := os.MkdirTemp("", "rkt-"+s.Name+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !s.Keep {
			os.RemoveAll(dir)
			return
		}
		fmt.Printf("the logs are in %s\n", dir)
	}()
	return s.Outside(ctx, dir)
}

func (s Suite) enter() (code int, err error) {
	if err := enter(); err != nil {
		return 0, err
	}
	if s.Environment != nil {
		if err := s.Environment(); err != nil {
			return 0, err
		}
	}
	return again(s.Name, suiteVariable, "/")
}

// again executes this program in the enclosure, with a variable that says so.
func again(name, variable, dir string) (code int, err error) {
	// Another directory for temporary files may be covered.
	if err := errors.Join(os.Setenv(variable, "1"), os.Setenv("TMPDIR", "/tmp")); err != nil {
		return 0, err
	}
	return Exec(Program{
		Path:   "/proc/self/exe",
		Args:   slices.Concat([]string{name}, os.Args[1:]),
		Env:    os.Environ(),
		Dir:    dir,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
}

// AddPrograms adds the directories of administrators' programs to $PATH: CNI's plugins execute some.
func AddPrograms() error {
	return os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
}
