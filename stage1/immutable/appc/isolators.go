package appc

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// docker14 returns the capabilities that rkt's stage1s give an app without an isolator for
// capabilities.
func docker14() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_SYS_CHROOT",
	}
}

func (t *translator) add(isolator *types.Isolator, err error) error {
	if err != nil {
		return fmt.Errorf("isolator: %w", err)
	}
	t.app.App.Isolators = append(t.app.App.Isolators, *isolator)
	return nil
}

// set adds an isolator. It passes the value as JSON, so that the library of appc checks it.
func (t *translator) set(name, value string) error {
	var i types.Isolator
	err := i.UnmarshalJSON(fmt.Appendf(nil, `{"name": %q, "value": %s}`, name, value))
	return t.add(&i, err)
}

func (t *translator) isolators() error {
	p := t.spec.Process
	if err := t.capabilities(p.Capabilities); err != nil {
		return err
	}
	if err := t.seccomp(); err != nil {
		return err
	}
	if p.NoNewPrivileges {
		if err := t.set(types.LinuxNoNewPrivilegesName, "true"); err != nil {
			return err
		}
	}
	if p.OOMScoreAdj != nil {
		if err := t.set(types.LinuxOOMScoreAdjName, strconv.Itoa(*p.OOMScoreAdj)); err != nil {
			return err
		}
	}
	if p.SelinuxLabel != "" {
		if err := t.selinux(p.SelinuxLabel); err != nil {
			return err
		}
	}
	return t.resources()
}

// capabilities translates the bounding set. appc has a single set, which becomes every set
// of a program of root.
func (t *translator) capabilities(c *specs.LinuxCapabilities) error {
	if c == nil {
		c = &specs.LinuxCapabilities{}
	}
	const field = "/process/capabilities"
	for _, s := range []struct {
		name string
		set  []string
		want []string
	}{
		{"effective", c.Effective, c.Bounding}, {"permitted", c.Permitted, c.Bounding},
		{"inheritable", c.Inheritable, nil}, {"ambient", c.Ambient, nil},
	} {
		if sameSet(s.set, s.want) {
			continue
		}
		if err := t.unsaid(field, field+"/"+s.name, "there is one set of capabilities, the bounding one"); err != nil {
			return err
		}
	}
	if len(c.Bounding) == 0 { // the library refuses an empty set; docker14 is the largest set that can be removed
		isolator, err := types.NewLinuxCapabilitiesRevokeSet(docker14()...)
		if err != nil {
			return err
		}
		return t.add(isolator.AsIsolator())
	}
	isolator, err := types.NewLinuxCapabilitiesRetainSet(c.Bounding...)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return t.add(isolator.AsIsolator())
}

func sameSet(a, b []string) bool {
	sorted := func(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }
	return slices.Equal(sorted(a), sorted(b))
}

// Privileged reports whether a spec lets a program keep all capabilities.
func Privileged(spec *specs.Spec) bool {
	const all = 38 // the last one of Linux 4.11, the latest that rkt knew
	return spec.Process != nil && spec.Process.Capabilities != nil && len(spec.Process.Capabilities.Bounding) >= all
}

func (t *translator) selinux(label string) error {
	part := strings.SplitN(label, ":", 4)
	if len(part) != 4 {
		return fmt.Errorf("/process/selinuxLabel %q is not USER:ROLE:TYPE:LEVEL", label)
	}
	return t.set(types.LinuxSELinuxContextName, fmt.Sprintf(`{"user": %q, "role": %q, "type": %q, "level": %q}`, part[0], part[1], part[2], part[3]))
}

// resources translates the limits that appc has. Stage 0's cgroup of the app enforces all
// limits; a stage1 that makes cgroups of its own needs them, too.
func (t *translator) resources() error {
	if t.spec.Linux == nil || t.spec.Linux.Resources == nil {
		return nil
	}
	r := t.spec.Linux.Resources
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		if err := t.set(types.ResourceMemoryName, fmt.Sprintf(`{"limit": "%d"}`, *m.Limit)); err != nil {
			return err
		}
	}
	c := r.CPU
	if c == nil {
		return nil
	}
	if c.Quota != nil && *c.Quota > 0 {
		period := uint64(100000)
		if c.Period != nil && *c.Period > 0 {
			period = *c.Period
		}
		milli := int64(math.Ceil(float64(*c.Quota) * 1000 / float64(period)))
		if err := t.set(types.ResourceCPUName, fmt.Sprintf(`{"limit": "%dm"}`, milli)); err != nil {
			return err
		}
	}
	if c.Shares != nil && *c.Shares > 0 {
		return t.set(types.LinuxCPUSharesName, strconv.FormatUint(min(max(*c.Shares, 2), 262144), 10))
	}
	return nil
}
