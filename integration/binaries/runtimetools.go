package binaries

import (
	"context"
	"io"
	"os"
	"path/filepath"
)

// RuntimeTools returns a directory with the validation programs of runtime-tools, which
// runtimetools/go.mod pins, and with what they expect in their working directory: runtimetest
// and an archive of a root file system. The first call on a machine takes a minute.
func RuntimeTools(ctx context.Context, log io.Writer) (dir, version string, err error) {
	const tools = "github.com/opencontainers/runtime-tools"
	module, version, err := pinned(ctx, "runtimetools", tools)
	if err != nil {
		return "", "", err
	}
	dir, err = Cached(cacheName("runtimetools", version), func(to string) error {
		done := Progress(log, "building the programs of runtime-tools "+version+" from its module (once, a minute)")
		defer done()
		if err := buildIn(ctx, module, to, tools+"/cmd/runtimetest"); err != nil {
			return err
		}
		programs := filepath.Join(to, "validation")
		if err := os.Mkdir(programs, 0o755); err != nil {
			return err
		}
		if err := buildIn(ctx, module, programs, tools+"/validation/..."); err != nil {
			return err
		}
		source, err := output(ctx, "-C", module, "list", "-m", "-f", "{{.Dir}}", tools)
		if err != nil {
			return err
		}
		return copyArchives(source, to)
	})
	return dir, version, err
}

// copyArchives copies the root file systems, one for each architecture.
func copyArchives(from, to string) error {
	archives, err := filepath.Glob(filepath.Join(from, "rootfs-*.tar.gz"))
	if err != nil {
		return err
	}
	for _, a := range archives {
		b, err := os.ReadFile(a)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(a)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
