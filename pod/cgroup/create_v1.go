package cgroup

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/fs"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// setUpV1 fills the cpuset, which accepts no process before that, and sets the access to
// devices and the CPU shares. The library does the same for a cgroup of any age; for a new one a
// third of its system calls are enough, because the content of its files is known. setUpV1
// removes from r what it has set.
func (g *Group) setUpV1(r *cgroups.Resources) error {
	if dir := g.record.Dirs["cpu"]; dir != "" {
		if err := setShares(dir, r); err != nil {
			return err
		}
	}
	if dir := g.record.Dirs["cpuset"]; dir != "" {
		if err := fillCpuset(dir, r); err != nil {
			return err
		}
		r.CpusetCpus, r.CpusetMems = "", ""
	}
	if userns.RunningInUserNS() { // the kernel does not allow it there
		return nil
	}
	if all, allowed, ok := onlyAllowed(r.Devices); ok {
		r.SkipDevices = true
		return limitDevices(g.record.Dir(), all, allowed)
	}
	return nil
}

// The shares of a new cgroup, and the bounds of a number of shares. The kernel writes another
// number than one out of bounds, which the library then reports.
const (
	defaultShares = 1024
	fewestShares  = 2
	mostShares    = 1 << 18
)

// setShares gives a new cgroup its CPU shares.
func setShares(dir string, r *cgroups.Resources) error {
	shares := r.CpuShares
	if shares < fewestShares || shares > mostShares {
		return nil
	}
	r.CpuShares = 0
	if shares == defaultShares {
		return nil
	}
	return proc.WriteFile(filepath.Join(dir, "cpu.shares"), strconv.FormatUint(shares, 10))
}

// fillCpuset gives a new cpuset the processors and the memory nodes of r, or else those of the
// cpuset above.
func fillCpuset(dir string, r *cgroups.Resources) error {
	for _, f := range []struct{ name, wanted string }{{"cpuset.cpus", r.CpusetCpus}, {"cpuset.mems", r.CpusetMems}} {
		wanted := f.wanted
		if wanted == "" {
			above, err := proc.ReadOnce(filepath.Join(filepath.Dir(dir), f.name))
			if wanted = strings.TrimSpace(string(above)); err != nil || wanted == "" {
				return fillCpusets(dir, r)
			}
		}
		if err := proc.WriteFile(filepath.Join(dir, f.name), wanted); err != nil {
			return fillCpusets(dir, r)
		}
	}
	return nil
}

// fillCpusets is fillCpuset for the cpusets above as well, if they are empty, and for files
// with names of another mount option.
func fillCpusets(dir string, r *cgroups.Resources) error {
	const noProcess = -1
	return (&fs.CpusetGroup{}).ApplyDir(dir, r, noProcess)
}

// onlyAllowed returns the devices that rules allow and no later rule denies; all means every
// device. ok is false if that is not all that the rules say: a device may be denied of which a
// wildcard allows more.
func onlyAllowed(rules []*devices.Rule) (all bool, allowed []devices.Rule, ok bool) {
	for _, rule := range rules {
		same := slices.IndexFunc(allowed, func(r devices.Rule) bool {
			return r.Type == rule.Type && r.Major == rule.Major && r.Minor == rule.Minor
		})
		switch {
		case rule.Type == devices.WildcardDevice:
			all, allowed = rule.Allow, nil
		case all && !rule.Allow:
			return false, nil, false
		case all:
		case rule.Allow && same < 0:
			allowed = append(allowed, *rule)
		case rule.Allow:
			allowed[same].Permissions = union(allowed[same].Permissions, rule.Permissions)
		case slices.ContainsFunc(allowed, func(r devices.Rule) bool { return r.Type == rule.Type && (r.Major < 0 || r.Minor < 0) }):
			return false, nil, false
		case same >= 0:
			if allowed[same].Permissions = without(allowed[same].Permissions, rule.Permissions); allowed[same].Permissions == "" {
				allowed = slices.Delete(allowed, same, same+1)
			}
		}
	}
	return all, allowed, true
}

func union(a, b devices.Permissions) devices.Permissions { return a + without(b, a) }

func without(a, b devices.Permissions) devices.Permissions {
	return devices.Permissions(strings.Map(func(r rune) rune {
		if strings.ContainsRune(string(b), r) {
			return -1
		}
		return r
	}, string(a)))
}

// limitDevices gives a new cgroup access to the allowed devices, or to all.
func limitDevices(dir string, all bool, allowed []devices.Rule) error {
	every := devices.Rule{Type: devices.WildcardDevice, Major: -1, Minor: -1, Permissions: "rwm"}
	if all {
		return proc.WriteFile(filepath.Join(dir, "devices.allow"), every.CgroupString())
	}
	var lines []string
	for _, rule := range allowed {
		lines = append(lines, rule.CgroupString())
	}
	if err := proc.WriteFile(filepath.Join(dir, "devices.deny"), every.CgroupString()); err != nil {
		return err
	}
	return proc.WriteFile(filepath.Join(dir, "devices.allow"), lines...)
}
