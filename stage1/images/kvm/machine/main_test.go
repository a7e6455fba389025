package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Children reaps the processes of all tests: there is one reaper per process.
var Children *proc.Children

// Dir is a directory for what several tests use. It is removed after them.
var Dir string

func TestMain(m *testing.M) {
	if os.Args[0] == Copier {
		os.Exit(Copy())
	}
	Children = proc.NewChildren()
	if os.Getenv(bootEnv) != "" {
		bootAndWait()
	}
	var err error
	if Dir, err = os.MkdirTemp("", "machine-"); err != nil {
		panic(err)
	}
	code := wait.Run(m, func(ctx context.Context) error { return Children.Close(ctx) })
	_ = os.RemoveAll(Dir)
	os.Exit(code)
}

// bootEnv has this program boot a machine for a test, instead of testing.
const bootEnv = "RKT_TEST_BOOT"

// bootAndWait boots the machine of the variable, prints the pid of QEMU and waits for SIGKILL.
func bootAndWait() {
	var c Config
	err := json.Unmarshal([]byte(os.Getenv(bootEnv)), &c)
	if err == nil {
		c.Children, c.Channel, c.Console = Children, os.NewFile(3, "channel"), os.NewFile(4, "console")
		var m Machine
		if m, err = Boot(context.Background(), c); err == nil {
			fmt.Println(m.PID())
			<-m.Done()
			err = m.Err()
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// Execute executes a command of QEMU's monitor.
func Execute(ctx context.Context, m Machine, name string, arguments, result any, files ...*os.File) error {
	return m.(*machine).qmp.executeWith(ctx, name, arguments, result, files...)
}
