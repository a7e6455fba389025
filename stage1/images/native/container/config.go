package container

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// config is the plan that Prepare makes and Init carries out, as JSON in a
// memfd. Both ends are the same binary, so the format has no version. Numbers
// named File are descriptors of the new process; 0 is none.
type config struct {
	Exec          bool `json:",omitempty"` // the plan is for an exec
	UserNamespace bool `json:",omitempty"` // it is not the host's

	Cgroups         []int  `json:",omitempty"` // Files: `tasks`, to write "0" to
	CgroupNamespace bool   `json:",omitempty"` // unshare one
	Keyring         string `json:",omitempty"` // name of the session keyring to join

	Rootfs       *rootfs           `json:",omitempty"`
	Mounts       []mount           `json:",omitempty"`
	Devices      []device          `json:",omitempty"`
	Masked       []string          `json:",omitempty"`
	Readonly     []string          `json:",omitempty"`
	MountLabel   string            `json:",omitempty"` // for mounts that Init invents
	Hostname     string            `json:",omitempty"`
	Domainname   string            `json:",omitempty"`
	Sysctl       map[string]string `json:",omitempty"` // keys are paths below /proc/sys
	Personality  *uint32           `json:",omitempty"`
	Hooks        *hooks            `json:",omitempty"`
	Terminal     bool              `json:",omitempty"`
	ConsoleSize  *specs.Box        `json:",omitempty"`
	Process      process
	Seccomp      []byte `json:",omitempty"` // sock_filter instructions, 8 bytes each
	SeccompFlags uint   `json:",omitempty"`
}

// rootfs says what becomes "/".
type rootfs struct {
	Path        string
	Propagation uintptr `json:",omitempty"` // MS_*; 0 is rslave
	Readonly    bool    `json:",omitempty"`
	NoPivotRoot bool    `json:",omitempty"`
	Populate    bool    `json:",omitempty"` // devices and symlinks are ours to make in /dev
}

// mount is one mount in the app.
type mount struct {
	Destination string
	Type        string
	Source      string
	Flags       uintptr        `json:",omitempty"` // of mount(2)
	Data        string         `json:",omitempty"`
	File        int            `json:",omitempty"` // a detached tree: the bind mount, ready to attach
	OnFile      bool           `json:",omitempty"` // the source is not a directory
	Propagation []uintptr      `json:",omitempty"`
	Recursive   unix.MountAttr `json:",omitzero"` // applied to the whole tree afterwards
	CopyUp      bool           `json:",omitempty"`
	ReadonlyEnd bool           `json:",omitempty"` // becomes read-only when all is in place
	Cgroups     []hierarchy    `json:",omitempty"` // version 1: what goes below the tmpfs
}

// hierarchy is one directory of a version 1 cgroup mount.
type hierarchy struct {
	Name string // directory: "cpu,cpuacct"
	Data string // for a mount of type cgroup: "cpu,cpuacct" or "none,name=systemd"
	File int    `json:",omitempty"` // or a detached tree: the app's own directory
}

// device is a node to make, or in a user namespace to bind.
type device struct {
	Path string
	Mode uint32 // with the type, as in mknod(2)
	Dev  uint64
	UID  uint32
	GID  uint32
	File int `json:",omitempty"` // a detached tree: the host's node
}

// hooks are those that Init runs, and the state that they are told.
type hooks struct {
	CreateContainer []specs.Hook `json:",omitempty"`
	StartContainer  []specs.Hook `json:",omitempty"`
	State           specs.State
}

// process is what the program is executed as.
type process struct {
	Args    []string
	Env     []string
	NoHome  bool   `json:",omitempty"` // HOME has to be looked up
	Path    string `json:",omitempty"` // PATH as the program will have it
	Cwd     string
	UID     uint32   `json:",omitempty"`
	GID     uint32   `json:",omitempty"`
	Groups  []uint32 `json:",omitempty"`
	Umask   uint32
	Caps    capabilities
	Rlimits []rlimit `json:",omitempty"`

	NoNewPrivileges bool            `json:",omitempty"`
	OOMScoreAdj     *int            `json:",omitempty"`
	Scheduler       *unix.SchedAttr `json:",omitempty"`
	IOPriority      *int            `json:",omitempty"` // as for ioprio_set(2)
	InitialCPUs     []int           `json:",omitempty"`
	FinalCPUs       []int           `json:",omitempty"`
	AppArmor        string          `json:",omitempty"` // profile
	SELinux         string          `json:",omitempty"` // label
}

// capabilities are the five sets, as bit masks.
type capabilities struct {
	Bounding, Effective, Inheritable, Permitted, Ambient uint64
}

// rlimit is one limit, with its name for errors.
type rlimit struct {
	Name     string
	Resource int
	Soft     uint64
	Hard     uint64
}
