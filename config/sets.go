package config

import (
	"maps"
	"slices"
)

// SetAppc is the set of the fields of the runtime spec that the App Container spec cannot
// express. It has no fields that the App Container spec can express, such as capabilities
// and seccomp. If a stage1 does not enforce one of those, the operator has to list the
// field by its name.
const SetAppc = "appc"

// builtinSet returns the fields of a set that comes with the shim, or nil.
func builtinSet(name string) []string {
	if name != SetAppc {
		return nil
	}
	return []string{
		"/domainname", "/hooks", "/hostname",
		"/linux/devices", "/linux/gidMappings", "/linux/intelRdt", "/linux/maskedPaths", "/linux/memoryPolicy",
		"/linux/mountLabel", "/linux/namespaces", "/linux/netDevices", "/linux/personality", "/linux/readonlyPaths",
		"/linux/rootfsPropagation", "/linux/sysctl", "/linux/timeOffsets", "/linux/uidMappings",
		"/mounts/*/gidMappings", "/mounts/*/options", "/mounts/*/uidMappings",
		"/process/apparmorProfile", "/process/consoleSize", "/process/execCPUAffinity", "/process/ioPriority",
		"/process/rlimits", "/process/scheduler", "/process/user/umask",
	}
}

// set returns the fields of a named set.
func (c *Config) set(name string) (fields []string, ok bool) {
	if fields, ok = c.Sets[name]; !ok {
		fields = builtinSet(name)
	}
	return fields, fields != nil
}

// SetNames returns the names of all sets of fields.
func (c *Config) SetNames() []string {
	names := append(slices.Collect(maps.Keys(c.Sets)), SetAppc)
	slices.Sort(names)
	return names
}
