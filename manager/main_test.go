package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// asShim in the environment makes the test binary the shim: every test of the
// command line executes itself, and so do the servers that `start` makes.
const asShim = "TEST_AS_SHIM"

// asEarly in the environment makes the test binary the front, and without it the server program. If
// the value is only, the front does not become the server program.
const (
	asEarly     = "TEST_AS_EARLY"
	only        = "only"
	notAnswered = 75 // the exit code of a call that the front did not answer
	planFile    = "plan.json"
)

func TestMain(m *testing.M) {
	if os.Getenv(asShim) != "" {
		os.Exit(asProgram())
	}
	_, err := os.Stat(early.DefaultSocketDir)
	code := wait.Run(m)
	if errors.Is(err, fs.ErrNotExist) {
		os.Remove(early.DefaultSocketDir)
	}
	os.Exit(code)
}

func asProgram() int {
	how := os.Getenv(asEarly)
	if how == "" {
		return fakeProgram().Main(os.Args)
	}
	os.Unsetenv(asEarly) // the server program is this one without it
	front := &early.Front{Records: []string{planFile}, Await: awaitPlan, Server: os.Executable}
	if path := os.Getenv(testServer); path != "" {
		front.Server = func() (string, error) { return path, nil }
	}
	front.ReportLimit, _ = time.ParseDuration(os.Getenv(testLimit))
	if how != only {
		return front.Main(os.Args)
	}
	answered, err := front.Answered(os.Args, os.Stdin, os.Stdout)
	switch {
	case answered:
		return 0
	case err != nil:
		panic(err)
	}
	return notAnswered
}

// awaitPlan waits for a lock on the plan, as the shim waits for a pod's.
func awaitPlan(ctx context.Context, bundle string) error {
	plan, err := os.OpenFile(filepath.Join(bundle, planFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := proc.FlockUntil(ctx, plan, unix.LOCK_EX); err != nil {
		return err
	}
	return plan.Close()
}

// testConfig is the name of an environment variable. Its value is the path of the
// node's configuration.
const testConfig = "TEST_CONFIG"

// testDataDir is the name of an environment variable. Its value is what is wrong with the data
// directory.
const testDataDir = "TEST_DATA_DIR"

// testLayers is the name of an environment variable that makes each stage1 one that makes roots of layers.
const testLayers = "TEST_LAYERS"

// Further variables of the environment: the path of a fifo from which a server reads before it is
// ready, the path of the front's server program, and how long the front waits for its report.
const (
	testFifo   = "TEST_FIFO"
	testServer = "TEST_SERVER"
	testLimit  = "TEST_LIMIT"
)

// failedFile is the name of the file in a bundle that has a line for each failed start.
const failedFile = "failed"

func keepFailed(f FailedStart) {
	file, err := os.OpenFile(filepath.Join(f.Bundle, failedFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %s %s: %v\n", filepath.Base(f.Address), f.Namespace, f.ID, f.Err)
}

func fakeProgram() *Program {
	return &Program{
		Version:  "1.2.3",
		Revision: "abc",
		Config: func() (*config.Config, error) {
			if path := os.Getenv(testConfig); path != "" {
				return config.Read(path)
			}
			return &config.Config{}, nil
		},
		Cgroups: func() (map[string]string, error) { return map[string]string{"pids": "/daemon"}, nil },
		DataDir: func() error {
			if fifo := os.Getenv(testFifo); fifo != "" {
				if _, err := os.ReadFile(fifo); err != nil {
					return err
				}
			}
			if text := os.Getenv(testDataDir); text != "" {
				return errors.New(text)
			}
			return nil
		},
		Layers:    func(config.Choice) bool { return os.Getenv(testLayers) != "" },
		Failed:    keepFailed,
		Serve:     serveFake,
		Collector: fakeCollector{},
		Describe: func(_ context.Context, stage1 config.Choice) (Description, error) {
			if stage1.Name == "broken" {
				return Description{}, errors.New("no such stage1")
			}
			return Description{Features: []byte(`{"ociVersionMax":"1.3.0"}`), Annotations: map[string]string{"stage1": stage1.Name}}, nil
		},
	}
}

// fakeCollector follows the plan in a file of the bundle, and records its calls there.
type fakeCollector struct{}

type collectPlan struct {
	Exit Exit
	Fail string
	Hang bool
}

func (fakeCollector) Collect(_ context.Context, bundle, namespace, id string) (Exit, error) {
	var plan collectPlan
	if text, err := os.ReadFile(filepath.Join(bundle, planFile)); err == nil {
		if err := json.Unmarshal(text, &plan); err != nil {
			return Exit{}, err
		}
	}
	if err := os.WriteFile(filepath.Join(bundle, "collected"), []byte(namespace+"/"+id), 0o600); err != nil {
		return Exit{}, err
	}
	for plan.Hang { // as an unmount does
		if _, err := os.Stat(bundle); err != nil {
			return Exit{}, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if plan.Fail != "" {
		return plan.Exit, errors.New(plan.Fail)
	}
	return plan.Exit, nil
}

func (fakeCollector) HasHooks(string) bool { return false }

// mayFinish ends the name of the file for which Finish waits.
const mayFinish = ".may"

// Finish writes to the file that rest names whether the server hangs, when the test lets it.
func (fakeCollector) Finish(_ context.Context, rest string, hangs bool) error {
	for began := time.Now(); !exists(rest+mayFinish) && time.Since(began) < wait.Patience; {
		time.Sleep(10 * time.Millisecond)
	}
	return os.WriteFile(rest, strconv.AppendBool(nil, hangs), 0o600)
}
