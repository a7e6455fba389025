package container

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// config is the plan that Prepare makes and Init carries out; codec encodes it in between.
// Numbers named File are descriptors of the new process; 0 means no file.
type config struct {
	Exec          bool // the plan is for an exec
	UserNamespace bool // the user namespace is not the host's

	Cgroups         []int  // Files: `tasks`, to write "0" to
	CgroupNamespace bool   // unshare one
	Loopback        bool   // bring that interface up: the network namespace is new
	NetDevices      bool   // the supervisor has network devices to move
	Keyring         string // name of the session keyring to join

	Chroot       int // of an exec, a File: the app's root, if it has no mount namespace
	Rootfs       *rootfs
	Mounts       []mount
	Devices      []device
	Masked       []string
	Readonly     []string
	MountLabel   string // for mounts that Init invents
	Hostname     string
	Domainname   string
	Sysctl       []sysctl
	Personality  *uint32
	MemoryPolicy *memoryPolicy
	Hooks        *hooks
	Terminal     bool
	ConsoleSize  *specs.Box
	Process      process
	Seccomp      []byte // sock_filter instructions, 8 bytes each
	SeccompFlags uint
}

// sysctl is a value for a file below /proc/sys.
type sysctl struct {
	Path, Value string
}

// rootfs says what becomes "/".
type rootfs struct {
	Path        string
	File        int     // a detached tree: the root, for a mount namespace that was joined
	Propagation uintptr // MS_*; 0: not asked for
	Readonly    bool
	NoPivotRoot bool
	Chroot      bool // there is no mount namespace
	Populate    bool // devices and symlinks are ours to make in /dev
}

// mount is one mount in the app.
type mount struct {
	Destination string
	Type        string
	Source      string
	Flags       uintptr // of mount(2)
	Data        string
	File        int  // a detached tree: the bind mount, ready to attach
	OnFile      bool // the source is not a directory
	Propagation []uintptr
	Recursive   unix.MountAttr // of the whole tree, afterwards
	CopyUp      bool
	ReadonlyEnd bool        // becomes read-only when all is in place
	Cgroups     []hierarchy // version 1: what goes below the tmpfs
}

// hierarchy is one directory of a version 1 cgroup mount.
type hierarchy struct {
	Name string // directory: "cpu,cpuacct"
	Data string // for a mount of type cgroup: "cpu,cpuacct" or "none,name=systemd"
	File int    // or a detached tree: the app's own directory
}

// device is a node to make, or in a user namespace to bind.
type device struct {
	Path string
	Mode uint32 // with the type, as in mknod(2)
	Dev  uint64
	UID  uint32
	GID  uint32
	File int // a detached tree: the host's node
}

// hooks are the hooks that Init runs, and the state that they read.
type hooks struct {
	CreateContainer []specs.Hook
	StartContainer  []specs.Hook
	State           specs.State
}

// process describes the program and the identity and limits with which it is executed.
type process struct {
	Args    []string
	Env     []string
	NoHome  bool   // HOME has to be looked up
	Path    string // PATH as the program will have it
	Cwd     string
	UID     uint32
	GID     uint32
	Groups  []uint32
	Umask   uint32
	Caps    capabilities
	Rlimits []rlimit

	NoNewPrivileges bool
	OOMScoreAdj     *int
	Scheduler       *unix.SchedAttr
	IOPriority      *int // as for ioprio_set(2)
	InitialCPUs     []int
	FinalCPUs       []int
	AppArmor        string // profile
	SELinux         string // label
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
