package pod

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/coreos/go-semver/semver"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// checkVersion checks the ociVersion of a config.json. It accepts versions 1.x of the OCI
// runtime spec, because all of them are compatible. Fields that are new in a later version
// are checked one by one. For any other version the error unwraps to
// errdefs.ErrNotImplemented, and for a text that is no version to
// errdefs.ErrInvalidArgument.
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
