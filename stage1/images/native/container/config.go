package container

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// config is the plan that Prepare makes and Init carries out. codec encodes it for the new
// process. Numbers named File are descriptors of the new process; 0 means no file.
type config struct {
	Exec          bool // the plan is for an exec
	UserNamespace bool // the user namespace is not the host's

	Cgroups         []int  // Files by which it enters its cgroups: it writes "0" to them
	CgroupNamespace bool   // make a new one
	Loopback        bool   // bring up the loopback interface of a new network namespace
	NetDevices      bool   // the supervisor has network devices to move
	RuntimeHooks    bool   // the supervisor has hooks to run
	Keyring         string // name of the session keyring to join

	Chroot       int // File: for an exec, the app's root if the app has no mount namespace
	Rootfs       *rootfs
	Mounts       []mount
	Devices      []device
	Masked       []string
	Readonly     []string
	MountLabel   string // for mounts that Init makes in addition to the spec's
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

// rootfs describes the directory that becomes "/".
type rootfs struct {
	Path        string
	File        int     // a detached copy of the root, if the mount namespace was joined
	Propagation uintptr // MS_*; 0: unchanged
	Readonly    bool
	NoPivotRoot bool
	Chroot      bool // there is no mount namespace
	Populate    bool // Init makes the devices and symlinks in /dev
}

// mount is one mount in the app.
type mount struct {
	Destination string
	Type        string
	Source      string
	Flags       uintptr // of mount(2)
	Data        string
	File        int  // a detached copy of the source of a bind mount
	OnFile      bool // the source is not a directory
	Propagation []uintptr
	Recursive   unix.MountAttr // attributes to set for the whole tree after the mount
	CopyUp      bool
	ReadonlyEnd bool        // make it read-only when all mounts are done
	Cgroups     []hierarchy // version 1: the mounts below the tmpfs
}

// hierarchy is one directory of a version 1 cgroup mount.
type hierarchy struct {
	Name string // directory: "cpu,cpuacct"
	Data string // for a mount of type cgroup: "cpu,cpuacct" or "none,name=systemd"
	File int    // or a detached bind mount of the app's own directory
}

// device is a node to make, or, in a user namespace, a node of the host to bind.
type device struct {
	Path string
	Mode uint32 // with the type, as in mknod(2)
	Dev  uint64
	UID  uint32
	GID  uint32
	File int // a detached bind mount of the host's node
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
	NoHome  bool        // HOME is missing and has to be looked up
	Path    string      // value of PATH for the program
	Self    fork.FileID // the program of init and the supervisor, which no app may execute
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
	IOPriority      *int // argument of ioprio_set(2)
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
