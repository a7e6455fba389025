package binaries

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
)

// OldRuncs are releases of runc with known holes. An attack is tried against one of them to
// show that it works. Each is one of the last releases before a class of attacks was fixed.
func OldRuncs() []string { return []string{"v1.0.0-rc6", "v1.0.0-rc94", "v1.1.1"} }

// OldRunc returns the path of one of OldRuncs. Like Runc it is built once.
func OldRunc(ctx context.Context, log io.Writer, version string) (string, error) {
	return buildRunc(ctx, log, path.Join("oldrunc", version))
}

// buildRunc builds the runc that a module inside this one pins.
func buildRunc(ctx context.Context, log io.Writer, name string) (string, error) {
	module, version, err := pinned(ctx, name, runc)
	if err != nil {
		return "", err
	}
	dir, err := Cached(cacheName("runc", version), func(dir string) error {
		done := Progress(log, "building runc "+version+" from its module (once, half a minute)")
		defer done()
		_, err := outputWith(ctx, "CGO_ENABLED=1", "-C", module, "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version[1:],
			"-tags", "seccomp", "-o", dir+"/", runc)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("runc %s: %w", version, err)
	}
	return filepath.Join(dir, "runc"), nil
}
