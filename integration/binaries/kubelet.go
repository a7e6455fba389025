package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// Kubelet returns a real kubelet, built from the modules that integration/kubernetes pins. The
// first call on a machine takes about ten minutes of one processor.
func Kubelet(ctx context.Context, log io.Writer) (string, error) {
	const module = "k8s.io/kubernetes"
	dir, version, err := pinned(ctx, "kubernetes", module)
	if err != nil {
		return "", err
	}
	name := cacheName("kubelet", version)
	in, err := Cached(name, func(to string) error {
		done := Progress(log, "building the kubelet of Kubernetes "+version+" from its module (once, ten minutes of a processor)")
		defer done()
		return buildIn(ctx, dir, to, module+"/cmd/kubelet")
	})
	return filepath.Join(in, "kubelet"), err
}
