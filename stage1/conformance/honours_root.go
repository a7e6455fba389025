package conformance

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// rootFields are about a program's files and names.
func rootFields(v *values) []honoured {
	create := "create " + v.data + "/created"
	return []honoured{
		{name: "readonly-root", about: "data", sentence: "nothing can be written to a root that is read-only", fields: []string{"/root/readonly"},
			ask:   func(s *specs.Spec) { s.Root.Readonly = true },
			facts: []fact{is(create, "EROFS")}},
		{name: "hostname", sentence: "the hostname is the spec's", fields: []string{"/hostname"},
			ask:   func(s *specs.Spec) { s.Hostname = v.hostname },
			facts: []fact{is("file /proc/sys/kernel/hostname", v.hostname)}},
		{name: "domainname", sentence: "the domain name is the spec's", fields: []string{"/domainname"},
			ask:   func(s *specs.Spec) { s.Domainname = v.domainname },
			facts: []fact{is("file /proc/sys/kernel/domainname", v.domainname)}},
		{name: "mounts", about: "mounts", sentence: "the file systems of the spec are mounted",
			fields: []string{"/mounts/*/destination", "/mounts/*/type", "/mounts/*/source"},
			ask: func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"}, v.boundData(s))
			},
			facts: []fact{has("mount /tmp", "tmpfs"), is("file /mnt/file", v.text)}},
		{name: "mount-options", about: "mounts", sentence: "the options of a mount are in force", fields: []string{"/mounts/*/options"},
			ask: func(s *specs.Spec) {
				bind := v.boundData(s)
				options := []string{"ro", "nosuid", "nodev", "noexec"}
				bind.Options = append(bind.Options, options...)
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: append(options, "noatime", "size="+v.size)}, bind)
			},
			facts: []fact{
				has("mount /tmp", "ro nosuid nodev noexec noatime size="+v.size), is("create /tmp/created", "EROFS"),
				has("mount /mnt", "ro nosuid nodev noexec"), is("create /mnt/created", "EROFS"),
			}},
		{name: "mount-owners", about: "mounts", sentence: "the files of a mount with mappings have the owners of the mappings",
			fields: []string{"/mounts/*/uidMappings/*/containerID", "/mounts/*/uidMappings/*/hostID", "/mounts/*/uidMappings/*/size",
				"/mounts/*/gidMappings/*/containerID", "/mounts/*/gidMappings/*/hostID", "/mounts/*/gidMappings/*/size"},
			ask: func(s *specs.Spec) {
				bind := v.boundData(s)
				bind.UIDMappings = []specs.LinuxIDMapping{{HostID: v.owner, Size: 1}}
				bind.GIDMappings = []specs.LinuxIDMapping{{HostID: v.ownerGroup, Size: 1}}
				s.Mounts = append(s.Mounts, bind)
			},
			facts: []fact{is("stat /mnt/file", fmt.Sprintf("f 0:0 0644 %d:%d", v.owner, v.ownerGroup))}},
		{name: "propagation", about: "mounts", sentence: "no mount of the host's comes into a root that is private", fields: []string{"/linux/rootfsPropagation"},
			ask: func(s *specs.Spec) {
				s.Linux.RootfsPropagation = "rprivate"
				s.Mounts = append(s.Mounts, v.boundData(s)) // the source is a shared mount on the host
			},
			facts: []fact{has("mount /mnt", "rw"), lacks("mount /mnt", "shared"), lacks("mount /mnt", "master")}},
		{name: "masked-paths", about: "data", sentence: "masked paths show nothing", fields: []string{"/linux/maskedPaths"},
			ask:   func(s *specs.Spec) { s.Linux.MaskedPaths = []string{v.data, "/bin/no-format"} },
			facts: []fact{is("list "+v.data, ""), is("file /bin/no-format", "")}},
		{name: "readonly-paths", about: "data", sentence: "nothing can be written to read-only paths", fields: []string{"/linux/readonlyPaths"},
			ask:   func(s *specs.Spec) { s.Linux.ReadonlyPaths = []string{v.data} },
			facts: []fact{is(create, "EROFS")}},
		{name: "mount-label", sentence: "an SELinux label of mounts that the kernel does not know is an error", fields: []string{"/linux/mountLabel"},
			refused: true, only: appOnly, ask: func(s *specs.Spec) { s.Linux.MountLabel = v.label }},
	}
}

// boundData mounts the directory of the root that has data a second time.
func (v *values) boundData(s *specs.Spec) specs.Mount {
	return specs.Mount{Destination: "/mnt", Type: "bind", Source: s.Root.Path + v.data, Options: []string{"rbind"}}
}
