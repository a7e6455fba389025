package disk

import (
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }
