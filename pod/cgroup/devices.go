package cgroup

import (
	"fmt"
	"strings"

	devices "github.com/opencontainers/cgroups/devices/config"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// allowedDevices are rules that every container gets in addition to its own. They allow the
// devices that the OCI runtime spec requires, pseudo terminals, and mknod of any device,
// which gives no access to the device. They allow tun because runc has always done so and
// VPN clients in containers rely on it.
var allowedDevices = []devices.Rule{
	{Type: devices.CharDevice, Major: -1, Minor: -1, Permissions: "m"},
	{Type: devices.BlockDevice, Major: -1, Minor: -1, Permissions: "m"},
	{Type: devices.CharDevice, Major: 1, Minor: 3, Permissions: "rwm"},    // null
	{Type: devices.CharDevice, Major: 1, Minor: 5, Permissions: "rwm"},    // zero
	{Type: devices.CharDevice, Major: 1, Minor: 7, Permissions: "rwm"},    // full
	{Type: devices.CharDevice, Major: 1, Minor: 8, Permissions: "rwm"},    // random
	{Type: devices.CharDevice, Major: 1, Minor: 9, Permissions: "rwm"},    // urandom
	{Type: devices.CharDevice, Major: 5, Minor: 0, Permissions: "rwm"},    // tty
	{Type: devices.CharDevice, Major: 5, Minor: 2, Permissions: "rwm"},    // ptmx
	{Type: devices.CharDevice, Major: 136, Minor: -1, Permissions: "rwm"}, // pts/*
	{Type: devices.CharDevice, Major: 10, Minor: 200, Permissions: "rwm"}, // net/tun
}

// convertDevices translates device rules. It begins with a rule that denies everything,
// then come the rules in their order, and the built-in rules last.
func convertDevices(rules []specs.LinuxDeviceCgroup) ([]*devices.Rule, error) {
	var list []*devices.Rule
	for i, d := range rules {
		r, err := convertDevice(d)
		if err != nil {
			return nil, fmt.Errorf("linux.resources.devices[%d]: %w", i, err)
		}
		list = append(list, r...)
	}
	for _, r := range allowedDevices {
		r.Allow = true
		list = append(list, &r)
	}
	return list, nil
}

// convertDevice translates a rule. The kernel and the library ignore the numbers and the access of a rule for both types, so one
// that says less than everything becomes one for each type.
func convertDevice(d specs.LinuxDeviceCgroup) ([]*devices.Rule, error) {
	var t devices.Type
	switch d.Type {
	case "", "a":
		t = devices.WildcardDevice
	case "b":
		t = devices.BlockDevice
	case "c", "u":
		t = devices.CharDevice
	default:
		return nil, fmt.Errorf("type %q is not one of a, b, c, u", d.Type)
	}
	if d.Access == "" || strings.Trim(d.Access, "rwm") != "" {
		return nil, fmt.Errorf("access %q is not made of r, w and m", d.Access)
	}
	r := &devices.Rule{Type: t, Major: -1, Minor: -1, Permissions: devices.Permissions(d.Access), Allow: d.Allow}
	if d.Major != nil {
		r.Major = *d.Major
	}
	if d.Minor != nil {
		r.Minor = *d.Minor
	}
	every := r.Major < 0 && r.Minor < 0 && strings.Contains(d.Access, "r") && strings.Contains(d.Access, "w") && strings.Contains(d.Access, "m")
	if t != devices.WildcardDevice || every {
		return []*devices.Rule{r}, nil
	}
	blocks, chars := *r, *r
	blocks.Type, chars.Type = devices.BlockDevice, devices.CharDevice
	return []*devices.Rule{&blocks, &chars}, nil
}
