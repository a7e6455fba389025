package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// CRITest returns a directory with critest, the validation suite of the CRI tools, from the
// module that critools/go.mod pins. The first call on a machine takes a minute.
func CRITest(ctx context.Context, log io.Writer) (string, error) {
	const module = "sigs.k8s.io/cri-tools"
	dir, version, err := pinned(ctx, "critools", module)
	if err != nil {
		return "", err
	}
	name := cacheName("critest", version)
	return Cached(name, func(to string) error {
		done := Progress(log, "building critest "+version+" from its module (once, a minute)")
		defer done()
		_, err := output(ctx, "-C", dir, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(to, "critest"), module+"/cmd/critest")
		return err
	})
}

// CRICtl returns the path of crictl, the CRI tools' command line client, of the same module. The
// first call on a machine takes a minute.
func CRICtl(ctx context.Context, log io.Writer) (string, error) {
	const module = "sigs.k8s.io/cri-tools"
	dir, err := fromModule(ctx, log, "critools", module, "a minute", module+"/cmd/crictl")
	return filepath.Join(dir, "crictl"), err
}

// CRISuite returns a directory with cri.test, containerd's suite for its CRI plugin.
func CRISuite(ctx context.Context, log io.Writer) (string, error) {
	version, err := output(ctx, "list", "-m", "-f", "{{.Version}}", containerd)
	if err != nil {
		return "", err
	}
	name := cacheName("crisuite", version)
	return Cached(name, func(dir string) error {
		done := Progress(log, "building the CRI suite of containerd "+version+" from its module (once, a minute)")
		defer done()
		_, err := output(ctx, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", filepath.Join(dir, "cri.test"), containerd+"/integration")
		return err
	})
}
