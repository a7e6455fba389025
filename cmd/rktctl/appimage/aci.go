package appimage

import (
	"context"

	"github.com/containerd/containerd/v2/pkg/oci"
)

type appcApp struct{}

func (*appcApp) options(string) []oci.SpecOpts                 { return nil }
func (*appcApp) mountPoints() []MountPoint                     { return nil }
func findACI(context.Context, string) (*source, error) { return nil, invalid("ACI") }
