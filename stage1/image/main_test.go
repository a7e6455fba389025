package image

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// patience is how long a test waits for something that is certain to happen on a machine
// that is not broken, however slow.
const patience = 30 * time.Second

// TestMain runs the tests, or a program that a test needs as another process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "test-render" {
		if err := renderProgram(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(wait.Run(m))
}

// renderProgram prints the digest of an image that it brings into a store.
func renderProgram(args []string) error {
	s, err := OpenStore(args[0])
	if err != nil {
		return err
	}
	i, err := s.Image(context.Background(), args[1], "")
	if err != nil {
		return err
	}
	fmt.Println(i.Digest())
	return nil
}

func openStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const podUUID = "6733c088-a507-4694-aabf-edbe4fc5266f"
