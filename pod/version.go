package pod

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/coreos/go-semver/semver"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// checkVersion returns an error for the ociVersion of a config.json that is no version 1 of
// the OCI runtime spec. All versions 1 are compatible: what a later one adds is found field by
// field. A text that is no version is errdefs.ErrInvalidArgument, another version is
// errdefs.ErrNotImplemented.
func checkVersion(version string) error {
	if version == "" {
		return fmt.Errorf("ociVersion is missing, which the OCI runtime spec requires, as in %q: %w", specs.Version, errdefs.ErrInvalidArgument)
	}
	v, err := semver.NewVersion(version)
	switch {
	case err != nil || v.String() != version: // leading zeros, or an empty pre-release
		return fmt.Errorf("ociVersion %.40q is not a version of the OCI runtime spec, such as %q: %w", version, specs.Version, errdefs.ErrInvalidArgument)
	case v.Major != specs.VersionMajor:
		return fmt.Errorf("ociVersion %.40q: this runtime knows version %d of the OCI runtime spec only: %w", version, specs.VersionMajor, errdefs.ErrNotImplemented)
	}
	return nil
}
