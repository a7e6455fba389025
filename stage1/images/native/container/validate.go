package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// validate checks the parts of a spec that apps and execs share. It returns a refusal,
// which names a field that this stage1 cannot honour, or a plain error about an invalid
// spec.
func validate(spec *specs.Spec) error {
	if spec.Version != "" && !strings.HasPrefix(spec.Version, "1.") {
		return refuse("ociVersion", "%q is not a version 1", spec.Version)
	}
	if spec.Process == nil {
		return errors.New("the spec has no process")
	}
	if spec.Linux == nil {
		return errors.New("the spec has no linux section")
	}
	if err := refuseUnsupported(spec); err != nil {
		return err
	}
	ns, err := parseNamespaces(spec.Linux)
	if err != nil {
		return err
	}
	if err := validateNames(spec, ns); err != nil {
		return err
	}
	if _, err := parseNetDevices(spec.Linux.NetDevices, ns); err != nil {
		return err
	}
	if !ns.has(specs.MountNamespace) {
		if err := validateChroot(spec, ns); err != nil {
			return err
		}
	}
	return validateHooks(spec.Hooks)
}

// refuseUnsupported refuses the fields that this stage1 cannot honour. Stage 0 refuses
// fields that features.json does not declare. These fields are refused here even if the
// operator lets the stage1 ignore them, because it would be wrong to ignore them.
func refuseUnsupported(spec *specs.Spec) error {
	l := spec.Linux
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"solaris", spec.Solaris != nil},
		{"windows", spec.Windows != nil},
		{"vm", spec.VM != nil},
		{"zos", spec.ZOS != nil},
		{"freebsd", spec.FreeBSD != nil},
		{"linux.intelRdt", l.IntelRdt != nil},
	} {
		if f.set {
			return refuse(f.field, "not supported")
		}
	}
	return refuseProcess(spec.Process)
}

func refuseProcess(p *specs.Process) error {
	if p.CommandLine != "" {
		return refuse("process.commandLine", "not supported")
	}
	if p.User.Username != "" {
		return refuse("process.user.username", "not supported: uid and gid say who the user is")
	}
	return nil
}

// namespaces are the namespaces of an app, by type. If a type is missing, the app uses the
// host's.
type namespaces map[specs.LinuxNamespaceType]specs.LinuxNamespace

func (ns namespaces) has(t specs.LinuxNamespaceType) bool {
	_, ok := ns[t]
	return ok
}

// isNew reports whether the namespace is made for the app, and not joined.
func (ns namespaces) isNew(t specs.LinuxNamespaceType) bool {
	n, ok := ns[t]
	return ok && n.Path == ""
}

// private reports whether the namespace differs from the host's: it is made for the app, or
// the app joins one that is not this process's.
func (ns namespaces) private(t specs.LinuxNamespaceType) bool {
	n, ok := ns[t]
	if !ok {
		return false
	}
	if n.Path == "" {
		return true
	}
	file := map[specs.LinuxNamespaceType]string{
		specs.NetworkNamespace: "net",
		specs.IPCNamespace:     "ipc",
		specs.UTSNamespace:     "uts",
		specs.UserNamespace:    "user",
	}[t]
	host, err1 := os.Stat("/proc/self/ns/" + file)
	joined, err2 := os.Stat(n.Path)
	if err1 != nil || err2 != nil {
		return false // joining it fails later, with a better error
	}
	return host.Sys().(*syscall.Stat_t).Ino != joined.Sys().(*syscall.Stat_t).Ino
}

func parseNamespaces(l *specs.Linux) (namespaces, error) {
	ns := make(namespaces, len(l.Namespaces))
	for _, n := range l.Namespaces {
		switch n.Type {
		case specs.PIDNamespace, specs.NetworkNamespace, specs.MountNamespace, specs.IPCNamespace,
			specs.UTSNamespace, specs.UserNamespace, specs.CgroupNamespace, specs.TimeNamespace:
		default:
			return nil, refuse("linux.namespaces", "type %q is not supported", n.Type)
		}
		if ns.has(n.Type) {
			return nil, fmt.Errorf("linux.namespaces: type %q appears twice", n.Type)
		}
		ns[n.Type] = n
	}
	if n := ns[specs.MountNamespace]; n.Path != "" && ns.isNew(specs.TimeNamespace) { // it needs a mount namespace of its own to set the clocks
		return nil, refuse("linux.namespaces", "a new time namespace needs a new mount namespace")
	}
	mapped := len(l.UIDMappings) > 0 && len(l.GIDMappings) > 0
	if ns.isNew(specs.UserNamespace) && !mapped {
		return nil, errors.New("linux.uidMappings: a new user namespace needs mappings of uids and gids")
	}
	if !ns.has(specs.UserNamespace) && (len(l.UIDMappings) > 0 || len(l.GIDMappings) > 0) {
		return nil, errors.New("linux.uidMappings: mappings without a user namespace")
	}
	return ns, validateOffsets(l.TimeOffsets, ns)
}

// validateOffsets checks the offsets of clocks. Only the process that makes a time
// namespace can set them. The kernel checks their values.
func validateOffsets(offsets map[string]specs.LinuxTimeOffset, ns namespaces) error {
	for clock := range offsets {
		if clock != "monotonic" && clock != "boottime" {
			return refuse("linux.timeOffsets", "clock %q is not known", clock)
		}
	}
	if len(offsets) > 0 && !ns.isNew(specs.TimeNamespace) {
		return errors.New("linux.timeOffsets: offsets without a new time namespace")
	}
	return nil
}

func validateNames(spec *specs.Spec, ns namespaces) error {
	if ns.has(specs.UTSNamespace) {
		return nil
	}
	if spec.Hostname != "" {
		return errors.New("hostname: cannot be set without a UTS namespace")
	}
	if spec.Domainname != "" {
		return errors.New("domainname: cannot be set without a UTS namespace")
	}
	return nil
}

func validateHooks(h *specs.Hooks) error {
	if h == nil {
		return nil
	}
	for _, list := range []struct {
		name  string
		hooks []specs.Hook
	}{
		{"prestart", h.Prestart},
		{"createRuntime", h.CreateRuntime},
		{"createContainer", h.CreateContainer},
		{"startContainer", h.StartContainer},
		{"poststart", h.Poststart},
		{"poststop", h.Poststop},
	} {
		for i, hook := range list.hooks {
			if !path.IsAbs(hook.Path) {
				return fmt.Errorf("hooks.%s[%d]: path %q is not absolute", list.name, i, hook.Path)
			}
			if hook.Timeout != nil && *hook.Timeout <= 0 {
				return fmt.Errorf("hooks.%s[%d]: timeout %d is not positive", list.name, i, *hook.Timeout)
			}
		}
	}
	return nil
}
