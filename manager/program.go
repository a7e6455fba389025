package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Program has the parts of the shim that its command line calls.
type Program struct {
	Version  string // of the shim; "unknown" if empty
	Revision string // of its source

	// Config reads the node's configuration. It is called before a stage1 is chosen.
	Config func() (*config.Config, error)
	// Cgroups returns the cgroups of this process, by controller.
	Cgroups func() (map[string]string, error)
	// DataDir makes the data directory with all that Serve needs there, or says why there can be no pods in it. The server
	// calls it before `start` answers, because only the error of `start` reaches the client.
	DataDir func() error
	// Layers, if set, reports whether a stage1 makes roots of layers by itself (abi.OwnLayers), as far as that is known before it is
	// prepared.
	Layers func(config.Choice) bool
	// Serve makes the services. It is called once, in the server process.
	Serve func(ctx context.Context, b Bootstrap) (*Service, error)
	// Collector does the work of `delete`.
	Collector Collector
	// Failed, if set, is called when `start` cannot start a server.
	Failed func(FailedStart)
	// Describe returns the features of a stage1, for `-info`. It must work without
	// root and without a pod.
	Describe func(ctx context.Context, stage1 config.Choice) (Description, error)
}

// Main runs the command line argv, whose first element is the program's name,
// and returns the exit code of the process.
func (p *Program) Main(argv []string) int {
	err := p.call(context.Background(), argv, os.Stdin, os.Stdout)
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errReported):
		// containerd shows this text to its clients.
		fmt.Fprintf(os.Stderr, "%s: %s\n", filepath.Base(argv[0]), proc.ExplainDenied(abi.Printable(err.Error())))
	}
	return 1
}

func (p *Program) call(ctx context.Context, argv []string, stdin *os.File, stdout io.Writer) error {
	f, err := early.ParseFlags(argv[1:])
	if err != nil {
		return err
	}
	switch {
	case f.Help:
		_, err = io.WriteString(stdout, early.Usage(filepath.Base(argv[0])))
		return err
	case f.Version:
		return p.printVersion(stdout, filepath.Base(argv[0]))
	case f.Info:
		return p.info(ctx, argv[0], stdin, stdout)
	}
	if err := f.Check(); err != nil {
		return err
	}
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("isolating containers needs root, and this is uid %d", uid)
	}
	switch f.Action {
	case "start":
		// A single byte on stderr would become part of the answer.
		log.L.Logger.SetOutput(io.Discard)
		return p.start(argv[0], f, stdin, stdout)
	case "delete":
		// containerd logs every line on stderr as a warning.
		log.L.Logger.SetLevel(log.WarnLevel)
		return p.delete(ctx, argv[0], f, stdout)
	case early.CollectAction:
		log.L.Logger.SetLevel(log.WarnLevel)
		return p.runCollect(ctx, f, os.Stdout)
	case early.FinishAction:
		log.L.Logger.SetOutput(io.Discard)
		return p.runFinish(ctx, f)
	default:
		return p.serve(ctx, f)
	}
}

func (p *Program) printVersion(w io.Writer, name string) error {
	_, err := fmt.Fprintf(w, "%s:\n  Version:    %s\n  Revision:   %s\n  Go version: %s\n",
		name, cmp.Or(p.Version, "unknown"), p.Revision, runtime.Version())
	return err
}
