package binaries

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// Kubelet returns a real kubelet, built from the modules that integration/kubernetes
// pins. It takes about ten minutes of one processor on a machine where it is not
// there yet.
func Kubelet(ctx context.Context, log io.Writer) (string, error) {
	const module = "k8s.io/kubernetes"
	dir, err := nested(ctx, "kubernetes")
	if err != nil {
		return "", err
	}
	version, err := output(ctx, "-C", dir, "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("kubelet-%s-%s-%s", version, runtime.Version(), runtime.GOARCH)
	in, err := Cached(name, func(to string) error {
		done := Progress(log, "building the kubelet of Kubernetes "+version+" from its module (once, ten minutes of a processor)")
		defer done()
		return buildIn(ctx, dir, to, module+"/cmd/kubelet")
	})
	return filepath.Join(in, "kubelet"), err
}
