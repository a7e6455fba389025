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

func TestMain(m *testing.M) {
	Children = proc.NewChildren()
	if os.Getenv(bootEnv) != "" {
		bootAndWait()
	}
	os.Exit(wait.Run(m, func(ctx context.Context) error { return Children.Close(ctx) }))
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
