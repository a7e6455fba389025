package pod

import (
	"context"
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// tellUnknown logs the ignored fields of a client's document that the OCI runtime spec does
// not have, and writes them to the pod's journal. They are typing errors, or a newer spec
// has them. what names the document.
func (a *app) tellUnknown(ctx context.Context, what string, exec ExecID, fields []string) {
	if len(fields) == 0 {
		return
	}
	a.session.logOf(ctx, a.id, exec, nil).Warnf("container %s: %s has fields that the OCI runtime spec does not have and that are ignored: %s", a.id, what, strings.Join(fields, ", "))
	c := a.call("")
	c.Request.Exec = string(exec)
	a.session.stage1.NoteUnknown(c, fields)
}

// unknownCapabilities returns texts for people with the capabilities that no kernel has. The OCI runtime spec asks for a
// warning.
func unknownCapabilities(p *specs.Process) (unknown []string) {
	if p.Capabilities == nil {
		return nil
	}
	known := abi.Capabilities()
	for _, set := range []struct {
		field string
		names []string
	}{
		{"bounding", p.Capabilities.Bounding}, {"effective", p.Capabilities.Effective}, {"inheritable", p.Capabilities.Inheritable},
		{"permitted", p.Capabilities.Permitted}, {"ambient", p.Capabilities.Ambient},
	} {
		for i, name := range set.names {
			if !slices.Contains(known, strings.ToUpper(name)) {
				unknown = append(unknown, fmt.Sprintf("/process/capabilities/%s/%d (%.40q is no capability)", set.field, i, name))
			}
		}
	}
	return unknown
}

// checkSpec checks the app's config.json, records its unknown fields on disk, and returns
// them.
func (a *app) checkSpec() (unknown []string, err error) {
	unknown, err = a.session.stage1.CheckSpec(a.config.Spec)
	unknown = append(unknown, unknownCapabilities(a.spec().Process)...)
	if err == nil && len(unknown) > 0 {
		err = a.disk.Update(func(r *disk.AppRecord) { r.Unknown = unknown })
	}
	return unknown, err
}
