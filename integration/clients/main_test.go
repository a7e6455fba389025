package clients

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Paths in the enclosure.
const (
	programsDir = "/run/programs" // containerd, the clients, testprog
	shimsDir    = "/run/shims"    // made by `make build`
)

func TestMain(m *testing.M) {
	enclosure.Tests{
		Name:    "clients",
		Missing: missing,
		Fill:    fill,
		Run:     func(m *testing.M) (int, error) { return m.Run(), nil },
	}.Main(m)
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "containers need root"
	}
	return ""
}

// full reports whether all of the suite runs, and not only the part of `make test`.
func full() bool { return os.Getenv("RKT_TEST_BUILDKIT") != "" }

func fill(ctx context.Context, e enclosure.Enclosure) error {
	var copies []enclosure.Copy
	if full() {
		dir, err := binaries.BuildKit(ctx, os.Stderr)
		if err != nil {
			return err
		}
		for _, name := range []string{"buildkitd", "buildctl"} {
			copies = append(copies, enclosure.Copy{From: filepath.Join(dir, name), To: programsDir})
		}
	}
	if err := binaries.Fill(ctx, e, programsDir, shimsDir, copies...); err != nil {
		return err
	}
	if _, err := binaries.TestProgram(ctx, e.Path(programsDir)); err != nil {
		return err
	}
	return binaries.Stress(ctx, e.Path(programsDir))
}
