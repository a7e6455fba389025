package appimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/isolator"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// appcApp is the section app of an ACI's manifest.
type appcApp struct{ types.App }

// cpuPeriod is the kernel's default period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

func (a *appcApp) mountPoints() []MountPoint {
	var all []MountPoint
	for _, m := range a.MountPoints {
		all = append(all, MountPoint{m.Name.String(), m.Path, m.ReadOnly})
	}
	slices.SortFunc(all, func(a, b MountPoint) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// apply writes to a spec what the configuration of an OCI image cannot express: numbers of
// users and groups, and isolators. Nothing is ignored silently: an isolator that is not known
// is an error with its name. unconfined reports that the app is to have no filter of system
// calls.
func (a *appcApp) apply(s *specs.Spec, root string) (unconfined bool, err error) {
	if len(a.EventHandlers) > 0 {
		return false, fmt.Errorf("eventHandlers of the ACI are not supported: %w", errdefs.ErrNotImplemented)
	}
	named := podmanifest.App{User: a.User, Group: a.Group}
	u := specs.User{}
	if u.UID, u.GID, err = named.Identity(root); err != nil {
		return false, err
	}
	u.AdditionalGids = []uint32{u.GID} // as in the specs of containerd
	for _, g := range a.SupplementaryGIDs {
		if id := uint32(g); int(id) == g && !slices.Contains(u.AdditionalGids, id) {
			u.AdditionalGids = append(u.AdditionalGids, id)
		}
	}
	s.Process.User = u
	s.Process.NoNewPrivileges = false // appc's default
	for _, i := range a.Isolators {
		all, err := isolate(s, i)
		if err != nil {
			return false, fmt.Errorf("isolator %s: %w", i.Name, err)
		}
		unconfined = unconfined || all
	}
	return unconfined, nil
}

// isolate applies an isolator to a spec.
func isolate(s *specs.Spec, i types.Isolator) (unconfined bool, err error) {
	var raw []byte
	if i.ValueRaw != nil {
		raw = *i.ValueRaw
	}
	switch i.Name {
	case types.LinuxCapabilitiesRetainSetName, types.LinuxCapabilitiesRevokeSetName:
		return false, setCapabilities(s.Process.Capabilities, raw, i.Name == types.LinuxCapabilitiesRetainSetName)
	case types.LinuxNoNewPrivilegesName:
		return false, json.Unmarshal(raw, &s.Process.NoNewPrivileges)
	case types.LinuxOOMScoreAdjName:
		return false, json.Unmarshal(raw, &s.Process.OOMScoreAdj)
	case isolator.RetainCalls, isolator.RemoveCalls:
		return setCalls(s, i.Name.String(), raw)
	case types.LinuxSELinuxContextName:
		var c struct{ User, Role, Type, Level string }
		err := json.Unmarshal(raw, &c)
		s.Process.SelinuxLabel = strings.Join([]string{c.User, c.Role, c.Type, c.Level}, ":")
		return false, err
	case types.UnixSysctlName:
		return false, json.Unmarshal(raw, &s.Linux.Sysctl)
	case types.LinuxCPUSharesName:
		return false, json.Unmarshal(raw, &cpu(s).Shares)
	case types.ResourceMemoryName, types.ResourceCPUName:
		return false, setLimit(s, i)
	}
	return false, fmt.Errorf("it is not supported: %w", errdefs.ErrNotImplemented)
}

func setCapabilities(caps *specs.LinuxCapabilities, raw []byte, retain bool) error {
	var of struct{ Set []string }
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	set := of.Set
	if !retain {
		set = slices.DeleteFunc(slices.Clone(caps.Bounding), func(c string) bool { return slices.Contains(of.Set, c) })
	}
	caps.Bounding, caps.Permitted, caps.Effective = set, slices.Clone(set), slices.Clone(set)
	return nil
}

// setCalls applies a filter of system calls. A filter that denies nothing leaves the default
// profile, as in rkt, and one that allows everything is none.
func setCalls(s *specs.Spec, name string, raw []byte) (unconfined bool, err error) {
	var of struct{ Set []string }
	if err := json.Unmarshal(raw, &of); err != nil {
		return false, err
	}
	if s.Linux.Seccomp != nil {
		return false, errors.New("there is one of system calls already")
	}
	switch {
	case name == isolator.RetainCalls && slices.Contains(of.Set, isolator.Everything):
		return true, nil
	case name == isolator.RemoveCalls && slices.Contains(of.Set, isolator.Nothing):
		return false, nil
	}
	return false, isolator.Filter(s, podmanifest.Isolator{Name: name, Value: raw})
}

// setLimit applies a limit. A request, which appc has beside the limit, asks a scheduler for
// something, and is nothing to enforce.
func setLimit(s *specs.Spec, i types.Isolator) error {
	r, ok := i.Value().(types.Resource)
	if !ok {
		return errors.New("its value is not understood")
	}
	limit := r.Limit()
	if limit == nil {
		return nil
	}
	if limit.Sign() <= 0 {
		return fmt.Errorf("the limit %s is not positive", limit)
	}
	if i.Name == types.ResourceMemoryName {
		bytes := limit.Value()
		resources(s).Memory = &specs.LinuxMemory{Limit: &bytes}
		return nil
	}
	period, quota := uint64(cpuPeriod), limit.MilliValue()*cpuPeriod/1000
	c := cpu(s)
	c.Period, c.Quota = &period, &quota
	return nil
}

func resources(s *specs.Spec) *specs.LinuxResources {
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	return s.Linux.Resources
}

func cpu(s *specs.Spec) *specs.LinuxCPU {
	r := resources(s)
	if r.CPU == nil {
		r.CPU = &specs.LinuxCPU{}
	}
	return r.CPU
}

// option returns apply as an option of package oci.
func (a *appcApp) option(root string, unconfined *bool) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		all, err := a.apply(s, root)
		*unconfined = *unconfined || all
		return err
	}
}
