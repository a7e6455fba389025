package kubelet

import (
	"context"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Paths in the enclosure.
const (
	programsDir = "/run/programs" // kubelet, containerd, ctr, runc's shim, pause, testprog
	shimsDir    = "/run/shims"    // made by `make build`
)

func TestMain(m *testing.M) {
	enclosure.Tests{
		Name:    "kubelet",
		Missing: missing,
		Fill:    fill,
		Run:     func(m *testing.M) (int, error) { return m.Run(), nil },
	}.Main(m)
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getenv("RKT_TEST_KUBELET") == "" {
		return "a kubelet takes ten minutes to build: make test-kubelet"
	}
	if os.Getuid() != 0 {
		return "pods need root"
	}
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		return "the pod network is made of Debian's containernetworking-plugins (make deps): " + err.Error()
	}
	return ""
}

func fill(ctx context.Context, e enclosure.Enclosure) error {
	kubelet, err := binaries.Kubelet(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := binaries.Fill(ctx, e, programsDir, shimsDir, enclosure.Copy{From: kubelet, To: programsDir}); err != nil {
		return err
	}
	for _, name := range []string{"testprog", "cri/pause"} {
		if _, err := binaries.Program(ctx, e.Path(programsDir), name); err != nil {
			return err
		}
	}
	return fillDeploy(ctx, e)
}
