package abi

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Version is the interface version that this package describes.
const Version = 7

// Annotations of a stage1's image manifest. The value of an entrypoint
// annotation is the path of an executable inside the image's rootfs.
const (
	AnnotationVersion  = "coreos.com/rkt/stage1/interface-version"
	AnnotationFeatures = "coreos.com/rkt/stage1/features"
	AnnotationServe    = "coreos.com/rkt/stage1/serve" // path of a socket below /rkt
	AnnotationPrefix   = "coreos.com/rkt/stage1/"      // + an Entrypoint

	// AnnotationOwn lists, with spaces between, what stage 0 leaves to the stage1: words of
	// type Own. AnnotationDeadlines lists calls that may take longer: "run=2m app/add=90s".
	// AnnotationSkip lists entrypoints that have nothing to do in a pod of version 7: "gc".
	// AnnotationWithout lists writable directories of the tree that the stage1 does not need:
	// "opt/stage2".
	AnnotationOwn       = "coreos.com/rkt/stage1/own"
	AnnotationSkip      = "coreos.com/rkt/stage1/skip"
	AnnotationWithout   = "coreos.com/rkt/stage1/without"
	AnnotationDeadlines = "coreos.com/rkt/stage1/deadlines"
)

// Own names something that a stage1 does by itself, most of it because its apps are not processes of
// the host: docs/stage1-abi.md, section 12.
type Own string

// The words of AnnotationOwn.
const (
	// OwnResources means that limits, statistics, OOM kills and pauses of apps are the
	// stage1's. Stage 0 sets no limit, and counts and freezes nothing.
	OwnResources Own = "resources"
	// OwnProcesses means that a process which app/add or enter reports is a proxy in the app's
	// cgroup. It need not be in the app's namespaces, and gets no signal that is for the app.
	// It needs OwnResources.
	OwnProcesses Own = "processes"
	// OwnNamespaces means that the process which `run` reports need not be in the namespaces
	// of a sandbox.
	OwnNamespaces Own = "namespaces"
	// OwnRootfs means that the stage1 mounts the root of an app from the list of mounts in
	// the request of app/add.
	OwnRootfs Own = "rootfs"
	// OwnDisks means the same for an app whose root is one mount of an image file or of a block
	// device. Stage 0 mounts the other roots.
	OwnDisks Own = "disks"
	// OwnLayers means the same for an app whose root is an overlay of such mounts.
	OwnLayers Own = "layers"
	// OwnChroot means that apps and execs are in their roots although stage 0 has another root than
	// its mount namespace, as after chroot(8). Stage 0 makes no pod of another stage1 then.
	OwnChroot Own = "chroot"
)

// Owns returns every word of AnnotationOwn.
func Owns() []Own {
	return []Own{OwnResources, OwnProcesses, OwnNamespaces, OwnRootfs, OwnDisks, OwnLayers, OwnChroot}
}

// Entrypoint names one executable of a stage1. With an entrypoint in its manifest a stage1
// declares that it implements that call.
type Entrypoint string

// The entrypoints. Run is required, the others are optional. docs/stage1-abi.md says what
// stage 0 does if one is absent.
const (
	Run           Entrypoint = "run"
	Enter         Entrypoint = "enter"
	GC            Entrypoint = "gc"
	Stop          Entrypoint = "stop"
	AppAdd        Entrypoint = "app/add"
	AppStart      Entrypoint = "app/start"
	AppStop       Entrypoint = "app/stop"
	AppRm         Entrypoint = "app/rm"
	AppSignal     Entrypoint = "app/signal"
	AppPause      Entrypoint = "app/pause"
	AppResume     Entrypoint = "app/resume"
	AppUpdate     Entrypoint = "app/update"
	AppStats      Entrypoint = "app/stats"
	AppCheckpoint Entrypoint = "app/checkpoint"

	// Network tells the stage1 that the network namespace of an app or of the pod has changed.
	Network Entrypoint = "network"

	// FeaturesProbe asks the stage1 which fields it honours with the programs of this
	// machine. It is called without a pod.
	FeaturesProbe Entrypoint = "features/probe"

	// Attach exists only in the interface versions before 7.
	Attach Entrypoint = "attach"
)

// Entrypoints returns every entrypoint that a manifest can declare.
func Entrypoints() []Entrypoint {
	return []Entrypoint{
		Run, Enter, GC, Stop, AppAdd, AppStart, AppStop, AppRm,
		AppSignal, AppPause, AppResume, AppUpdate, AppStats, AppCheckpoint, Network, FeaturesProbe, Attach,
	}
}

// Environment of an entrypoint. If a call has no value for a variable, the variable is not
// set.
const (
	EnvRequest       = "RKT_STAGE1_REQUEST" // path of the request document
	EnvReadyFD       = "RKT_READY_FD"       // run, app/add, enter: one Ready line
	EnvErrorFD       = "RKT_ERROR_FD"       // every call: the text of its failure
	EnvLockFD        = "RKT_LOCK_FD"        // run: the locked pod directory
	EnvNotifyFD      = "RKT_NOTIFY_FD"      // run: one Notice per exit
	EnvProcessors    = "GOMAXPROCS"         // run: 1, for supervisors in Go
	EnvContainer     = "RKT_CONTAINER"      // app/*, enter: containerd's id, for the OCI state
	EnvBundle        = "RKT_BUNDLE"         // app/*, enter: an OCI bundle, ready to use
	EnvApp           = "RKT_APP"            // app/*, enter: the app's name
	EnvExec          = "RKT_EXEC"           // enter, app/signal: the exec's id
	EnvSignal        = "RKT_SIGNAL"         // app/signal: decimal signal number
	EnvProcess       = "RKT_PROCESS"        // enter: path of a file with the OCI process alone
	EnvCgroup        = "RKT_CGROUP"         // app/add, enter: colon separated cgroup directories
	EnvCgroupUnified = "RKT_CGROUP_UNIFIED" // the same calls, on a host with both versions: the directory of version 2
	EnvConsoleSocket = "RKT_CONSOLE_SOCKET" // app/add, enter with a terminal
	EnvCheckpoint    = "RKT_CHECKPOINT"     // app/checkpoint, app/add: directory
	EnvTraceparent   = "RKT_TRACEPARENT"    // every call with a trace context: a Traceparent
	EnvEnterCmd      = "RKT_STAGE1_ENTERCMD"
	EnvEnterPID      = "RKT_STAGE1_ENTERPID"
)

// File descriptors that stage 0 passes. A stage1 must read their numbers from the
// environment variables; stage 0 uses these. All are within 3 to 9, because dash cannot
// name others.
const (
	ErrorFD  = 3
	ReadyFD  = 4
	LockFD   = 5
	NotifyFD = 6
)

// MaxAppStats is the largest answer of app/stats, in bytes.
const MaxAppStats = 64 << 10

// Exit codes of an entrypoint that have a meaning of their own. All other codes except 0
// are plain failures.
const (
	ExitNotFound           = 5 // no such app or exec, or its process has ended
	ExitFailedPrecondition = 6 // the app or exec is in another state
	ExitNotImplemented     = 7 // the request asks for something that this stage1 cannot do
)

// MaxErrorText is how many bytes of RKT_ERROR_FD stage 0 keeps. It keeps the last ones.
const MaxErrorText = 4096

// Request is the document that RKT_STAGE1_REQUEST names. Fields that a call does not need
// are absent. A stage1 ignores fields that it does not know; stage 0 increases Version
// only when the meaning of a field changes.
type Request struct {
	Version    int        `json:"version"`
	Entrypoint Entrypoint `json:"entrypoint"`
	Pod        string     `json:"pod"` // UUID
	App        string     `json:"app,omitempty"`
	Exec       string     `json:"exec,omitempty"`
	Signal     int        `json:"signal,omitempty"`
	Debug      bool       `json:"debug,omitempty"`
	Force      bool       `json:"force,omitempty"` // stop: as --force

	// app/add and enter.
	Container     string   `json:"container,omitempty"`     // containerd's id, for the OCI state
	Bundle        string   `json:"bundle,omitempty"`        // as RKT_BUNDLE
	Rootfs        string   `json:"rootfs,omitempty"`        // absolute; the app's mounted root
	Cgroup        *Cgroup  `json:"cgroup,omitempty"`        // the app's, made by stage 0
	Terminal      bool     `json:"terminal,omitempty"`      // then ConsoleSocket is set
	ConsoleSocket string   `json:"consoleSocket,omitempty"` // at most 107 bytes
	Options       *Options `json:"options,omitempty"`

	// Exactly one of these two is set: Spec in app/add, Process in enter. Both are OCI
	// runtime-spec documents, byte for byte as the client wrote them. With OwnNamespaces, run
	// has the first app's Spec and Bundle.
	Spec    RawJSON `json:"spec,omitempty"`
	Process RawJSON `json:"process,omitempty"`

	// app/update: an OCI linux.resources object, as the client wrote it. run: the limits of
	// the pod that are known when it starts.
	Resources RawJSON `json:"resources,omitempty"`

	// app/add with OwnRootfs, or of disks with OwnDisks and OwnLayers: the mounts that make the app's root, in this order.
	// Rootfs is the directory to mount them on, if the stage1 mounts them on the host. A path that begins with a
	// number is in the mount of that number, which then is not made on the root.
	Mounts []Mount `json:"mounts,omitempty"`

	// app/signal: the signal is for every process of the app, with OwnProcesses.
	All bool `json:"all,omitempty"`

	// app/checkpoint: the checkpoint to write. app/add: the checkpoint from which to
	// restore the app.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`

	// run: stage 0 accepts notices that say how a process ended.
	NoticeWords bool `json:"noticeWords,omitempty"`

	// run: the sandbox, if the Sandbox service makes the pod.
	Sandbox *Sandbox `json:"sandbox,omitempty"`

	// run: what is known of the pod when it starts, from its sandbox or its first app.
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	PodCgroup   *Cgroup           `json:"podCgroup,omitempty"` // that the client has made for the pod

	// run and network: path of the pod's or the app's network namespace, if it is known and
	// not the host's.
	Netns string `json:"netns,omitempty"`

	// Traceparent is the trace context of the call, if its client has sent one: the span is
	// that of this call.
	Traceparent Traceparent `json:"traceparent,omitempty"`
}

// Mount is a mount of an app's root, as containerd has described it.
type Mount struct {
	Type    string   `json:"type,omitempty"`
	Source  string   `json:"source,omitempty"`
	Target  string   `json:"target,omitempty"` // relative to the root; empty is the root itself
	Options []string `json:"options,omitempty"`
	Dirs    []Dir    `json:"dirs,omitempty"` // to make before it, if they are missing
}

// Dir is a directory that a mount of an app's root needs.
type Dir struct {
	Path string `json:"path"` // begins with the number of the mount in which it is
	Mode uint32 `json:"mode"`
}

// Options are the runtime options that a client can set in addition to the OCI spec.
type Options struct {
	NoPivotRoot  bool   `json:"noPivotRoot,omitempty"`
	NoNewKeyring bool   `json:"noNewKeyring,omitempty"`
	IoUID        uint32 `json:"ioUid,omitempty"`
	IoGID        uint32 `json:"ioGid,omitempty"`
}

// Checkpoint names the directory of an app's state, and has containerd's options for a
// checkpoint. In app/add only Path is set.
type Checkpoint struct {
	Path                string   `json:"path"` // directory
	Exit                bool     `json:"exit,omitempty"`
	OpenTCP             bool     `json:"openTcp,omitempty"`
	ExternalUnixSockets bool     `json:"externalUnixSockets,omitempty"`
	Terminal            bool     `json:"terminal,omitempty"`
	FileLocks           bool     `json:"fileLocks,omitempty"`
	EmptyNamespaces     []string `json:"emptyNamespaces,omitempty"`
	CgroupsMode         string   `json:"cgroupsMode,omitempty"`
}

// Cgroup names the directories of an app's cgroup. Stage 0 makes them. The app's process
// enters them by itself, before it executes anything of the user's and before it makes a cgroup
// namespace. On version 1 it writes 0 to "tasks" in each directory. On version 2 it is cloned into
// the only directory, or writes 0 to its "cgroup.procs".
type Cgroup struct {
	Version int      `json:"version"` // 1 or 2
	Dirs    []string `json:"dirs"`    // absolute
	// Unified is the directory of version 2 that the process enters besides those of version 1, on a
	// host that has both.
	Unified string `json:"unified,omitempty"`
}

// All returns Dirs and Unified. Each has a file "cgroup.procs" by which a process can enter it.
func (c *Cgroup) All() []string {
	if c.Unified == "" {
		return c.Dirs
	}
	return append(slices.Clone(c.Dirs), c.Unified)
}

// Ways returns how a new process enters the cgroup: the directory into which it is cloned, or "", and the files to
// which it writes 0. A process needs both on a host with both versions. For an app without a cgroup both are empty.
func (c *Cgroup) Ways() (dir string, tasks []string, err error) {
	if c == nil || len(c.Dirs) == 0 {
		return "", nil, nil
	}
	switch {
	case c.Version == 2 && len(c.Dirs) == 1:
		return c.Dirs[0], nil, nil
	case c.Version == 1:
		for _, dir := range c.Dirs {
			tasks = append(tasks, filepath.Join(dir, "tasks"))
		}
		return c.Unified, tasks, nil
	}
	return "", nil, fmt.Errorf("version %d with %d directories", c.Version, len(c.Dirs))
}

// Sandbox describes a pod of the Sandbox service, which exists before it has an app.
type Sandbox struct {
	Hostname    string            `json:"hostname,omitempty"`
	Namespaces  []Namespace       `json:"namespaces,omitempty"`
	UIDMappings []IDMapping       `json:"uidMappings,omitempty"`
	GIDMappings []IDMapping       `json:"gidMappings,omitempty"`
	Sysctl      map[string]string `json:"sysctl,omitempty"`
	Cgroup      *Cgroup           `json:"cgroup,omitempty"` // the pod's own
}

// Namespace is a namespace to make or, with a Path, to join. Types are those of the OCI
// runtime spec.
type Namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

// IDMapping is one line of uid_map or gid_map.
type IDMapping struct {
	ContainerID uint32 `json:"containerID"`
	HostID      uint32 `json:"hostID"`
	Size        uint32 `json:"size"`
}

// Ready is the line that run, app/add and enter write to RKT_READY_FD when the process
// exists. StartTime is field 22 of /proc/PID/stat, in clock ticks since boot. If the line
// has no start time, stage 0 reads it from there.
type Ready struct {
	PID       int      `json:"pid"`
	StartTime uint64   `json:"starttime,omitempty"`
	Recorder  Recorder `json:"recorder,omitempty"`
}

// Recorder says, in the ready line of app/add and enter, who records the exit of the
// process: docs/stage1-abi.md, section 6. If the line does not say it, stage 0 looks at the
// parent of the process.
type Recorder string

// The recorders.
const (
	RecorderStage1 Recorder = "stage1" // the stage1 writes the record and the notice
	RecorderStage0 Recorder = "stage0" // the process becomes stage 0's child, at the latest when the call ends
	RecorderCall   Recorder = "call"   // enter stays, and its wait status is the exit
)

// RawJSON is a JSON text kept byte for byte.
type RawJSON []byte

// MarshalJSON returns the text as it is.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of the text.
func (r *RawJSON) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}
