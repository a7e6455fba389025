package docker

import (
	"context"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// Paths in the enclosure.
const (
	programsDir = "/run/programs" // containerd, ctr, dockerd, docker
	shimsDir    = "/run/shims"    // made by `make build`
	archive     = "/run/images.tar"
	document    = "/run/clients.md" // the repository may be in a directory that the enclosure hides
	machinesDir = "/run/machines"   // the configuration of a stage1 kvm that emulates
)

func TestMain(m *testing.M) {
	enclosure.Tests{
		Name:    "docker",
		Missing: missing,
		Fill:    fill,
		Run:     run,
	}.Main(m)
}

func run(m *testing.M) (int, error) {
	if machines.Only() {
		if _, err := machines.Configure(shimsDir, machinesDir); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getenv("RKT_TEST_DOCKER") == "" {
		return "Docker's daemon takes minutes to build: make test-docker"
	}
	if os.Getuid() != 0 {
		return "containers need root"
	}
	return ""
}

func fill(ctx context.Context, e enclosure.Enclosure) error {
	daemon, client, err := binaries.Docker(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := binaries.Fill(ctx, e, programsDir, shimsDir,
		enclosure.Copy{From: daemon, To: programsDir}, enclosure.Copy{From: client, To: programsDir}); err != nil {
		return err
	}
	text, err := os.ReadFile("../../docs/clients.md")
	if err == nil {
		err = os.WriteFile(e.Path(document), text, 0o600)
	}
	if err != nil {
		return err
	}
	prog, err := binaries.TestProgram(ctx, e.Path(programsDir))
	if err != nil {
		return err
	}
	images, err := image.Test(prog)
	if err != nil {
		return err
	}
	return image.WriteFile(e.Path(archive), images[0])
}
