package stage1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// entrypoints lists every entrypoint that a manifest can declare.
var entrypoints = [...]abi.Entrypoint{
	abi.Run, abi.Enter, abi.GC, abi.Stop, abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm,
	abi.AppSignal, abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.AppCheckpoint,
}

// manifest is what stage 0 needs of an image's manifest.
type manifest struct {
	name     string
	version  int
	paths    map[abi.Entrypoint]string // inside rootfs, absolute there
	features string                    // as paths; empty if there is none
}

// parseManifest reads a manifest. source is what errors call it.
func parseManifest(text []byte, source string) (*manifest, error) {
	var im schema.ImageManifest
	if err := im.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("%s is not an appc image manifest: %v; see docs/stage1-abi.md, section 1: %w", source, err, errdefs.ErrInvalidArgument)
	}
	m := &manifest{name: im.Name.String(), version: 1, paths: map[abi.Entrypoint]string{}}
	if v, ok := im.Annotations.Get(abi.AnnotationVersion); ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			return nil, fmt.Errorf("%s: annotation %s is %q and has to be a number: %w", source, abi.AnnotationVersion, v, errdefs.ErrInvalidArgument)
		}
		m.version = n
	}
	if m.version != abi.Version {
		return nil, fmt.Errorf("%s: interface version %d; this shim speaks version %d only: %w", source, m.version, abi.Version, errdefs.ErrNotImplemented)
	}
	for _, e := range entrypoints {
		v, ok := im.Annotations.Get(abi.AnnotationPrefix + string(e))
		if !ok {
			continue
		}
		if err := checkPath(v); err != nil {
			return nil, fmt.Errorf("%s: entrypoint %s: %w", source, e, err)
		}
		m.paths[e] = v
	}
	if v, ok := im.Annotations.Get(abi.AnnotationFeatures); ok {
		if err := checkPath(v); err != nil {
			return nil, fmt.Errorf("%s: features: %w", source, err)
		}
		m.features = v
	}
	return m, m.complete(source)
}

// complete refuses a manifest with too little in it.
func (m *manifest) complete(source string) error {
	for _, e := range []abi.Entrypoint{abi.Run, abi.AppAdd, abi.AppStart, abi.AppRm} {
		if m.paths[e] == "" {
			return fmt.Errorf("%s declares no entrypoint %s: add the annotation %s%s with the path of an executable: %w",
				source, e, abi.AnnotationPrefix, e, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("%q is not a clean absolute path inside the image's rootfs: %w", p, errdefs.ErrInvalidArgument)
	}
	return nil
}

// checkFiles makes sure that what the manifest declares is there.
func (m *manifest) checkFiles(rootfs string) error {
	root, err := os.OpenRoot(rootfs)
	if err != nil {
		return fmt.Errorf("stage1 image: %w", err)
	}
	defer root.Close()
	for e, p := range m.paths {
		st, err := root.Stat(strings.TrimPrefix(p, "/"))
		file := filepath.Join(rootfs, p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("entrypoint %s: %s is missing from the image: %w", e, file, errdefs.ErrInvalidArgument)
		case err != nil:
			return fmt.Errorf("entrypoint %s: %s: %v: %w", e, file, err, errdefs.ErrInvalidArgument)
		case !st.Mode().IsRegular():
			return fmt.Errorf("entrypoint %s: %s is not a regular file: %w", e, file, errdefs.ErrInvalidArgument)
		case st.Mode()&0o111 == 0:
			return fmt.Errorf("entrypoint %s: %s is not executable: chmod +x it: %w", e, file, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
