package hosts

import (
	"context"
	"slices"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// state is a state of the host in which a containerd runs.
type state struct {
	name string
	// prepare is a shell script that is executed in the daemon's mount namespace. $DATA is the data directory.
	prepare string
	// world is a shell script that makes other namespaces, and executes "$@". It is executed in place of prepare.
	world  string
	denied denied
	// spec changes all containers, and not is a step that containerd itself cannot do.
	spec oci.SpecOpts
	not  string
	env  []string
	// refused has, by column, the text that each error of a stage1 has. An empty key stands for all stage1s. Without it, all
	// steps must succeed that succeed with runc.
	refused map[string]string
	// short is set for the states of the short form.
	short bool
}

func all(text string) map[string]string { return map[string]string{"": text} }

// withoutTTYGroup makes terminals belong to the only group of a user namespace, as clients do there.
func withoutTTYGroup(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
	for i := range s.Mounts {
		s.Mounts[i].Options = slices.DeleteFunc(s.Mounts[i].Options, func(o string) bool { return o == "gid=5" })
	}
	return nil
}

// states returns all states.
func states() []state {
	odd := []state{
		{name: "nothing odd", prepare: ":"},
		{name: "/proc with subset=pid", prepare: "mount -t proc -o subset=pid proc /proc", short: true},
		{name: "a tmpfs on /proc/sys", prepare: "mount -t tmpfs tmpfs /proc/sys"},
		{name: "a tmpfs on /proc/sys/kernel/random", prepare: "mount -t tmpfs tmpfs /proc/sys/kernel/random"},
		{name: "data directory: nosymfollow", prepare: "mount -t tmpfs -o nosymfollow,mode=711 tmpfs $DATA", short: true},
		{name: "data directory: on an unbindable mount", prepare: "mount -t tmpfs -o mode=711 tmpfs $DATA; mount --make-unbindable $DATA", short: true, refused: all("unbindable")},
		{name: "data directory: read-only", prepare: "mount -t tmpfs -o ro,mode=711 tmpfs $DATA", refused: all("read-only file system")},
		{name: "data directory: no inodes", prepare: "mount -t tmpfs -o nr_inodes=1,mode=711 tmpfs $DATA", refused: all("no space left on device")},
		{name: "data directory: nosuid, nodev", prepare: "mount -t tmpfs -o nosuid,nodev,mode=711 tmpfs $DATA"},
		{name: "data directory: not UTF-8", env: []string{"RKT_DATA_DIR=/tmp/\xff"}, refused: all("UTF-8")},
		{name: "data directory: a relative path", env: []string{"RKT_DATA_DIR=opt/rkt"}, refused: all("RKT_DATA_DIR")},
		{name: "a user namespace", world: `exec unshare --user --map-root-user --mount "$@"`, spec: withoutTTYGroup, not: inUserNamespace,
			refused: map[string]string{"native": "containerd is in a user namespace", "nspawn": "devpts"}},
		{name: "a PID namespace without its /proc", world: `exec unshare --mount --pid sh -c 'trap "kill \$child" TERM; "$@" & child=$!; wait; wait' sh "$@"`, refused: all("/proc")},
		{name: "no /dev/null", prepare: "mount -t tmpfs tmpfs /dev", refused: all("/dev/null")},
		{name: "umask 0077", prepare: "umask 0077"},
		{name: "umask 0777", prepare: "umask 0777"},
		{name: "PATH without the system's programs", prepare: "export PATH=" + programsDir + ":" + shimsDir + ":" + runcDir,
			refused: map[string]string{"nspawn": "systemd-nspawn"}},
		{name: "without CAP_SYS_PTRACE", prepare: `set -- setpriv --bounding-set -sys_ptrace "$@"`,
			refused: map[string]string{"native": "CAP_SYS_PTRACE", "nspawn": "CAP_SYS_PTRACE"}},
		{name: "without CAP_SETPCAP", prepare: `set -- setpriv --bounding-set -setpcap "$@"`},
		{name: "a limit of 64 descriptors", prepare: "ulimit -Sn 64"},
		{name: "/tmp read-only", prepare: "mount -t tmpfs -o ro tmpfs /tmp", refused: map[string]string{"nspawn": "Read-only file system"}},
		{name: "SIGCHLD and SIGTERM ignored", prepare: "trap '' CHLD TERM"},
	}
	for _, call := range calls() {
		for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
			if call.name == "waitid" && errno == unix.EPERM {
				continue // containerd itself does without waitid(2) only if that is missing
			}
			s := state{name: call.name + ": " + unix.ErrnoName(errno), prepare: ":", denied: denied{call.name, call.number, errno}, refused: map[string]string{}}
			for _, column := range call.needed {
				s.refused[column] = call.name
			}
			if call.name == "faccessat2" && errno == unix.EPERM {
				s.refused["nspawn"] = "doesn't look like it has an OS tree" // systemd's, which falls back only if the call is missing
			}
			s.short = call.short && errno == unix.ENOSYS
			odd = append(odd, s)
		}
	}
	return odd
}

// call is a system call that is denied.
type call struct {
	name   string
	number uintptr
	// needed are the stage1s without which some or all containers of it fail, with an error that names the call.
	needed []string
	short  bool
}

// calls are system calls that the shim, its stage1s or their programs make, and that a seccomp profile
// around containerd may deny, because they are younger than it is or because it has a reason to.
func calls() []call {
	all, supervised := []string{"native", "oci", "nspawn"}, []string{"native", "nspawn"}
	return []call{
		{name: "openat2", number: unix.SYS_OPENAT2, needed: all},
		{name: "open_tree", number: unix.SYS_OPEN_TREE, needed: supervised},
		{name: "move_mount", number: unix.SYS_MOVE_MOUNT, needed: supervised},
		{name: "mount_setattr", number: unix.SYS_MOUNT_SETATTR, needed: supervised},
		{name: "fsopen", number: unix.SYS_FSOPEN, needed: supervised},
		{name: "fsconfig", number: unix.SYS_FSCONFIG, needed: supervised},
		{name: "fsmount", number: unix.SYS_FSMOUNT, needed: supervised},
		{name: "close_range", number: unix.SYS_CLOSE_RANGE, needed: supervised},
		{name: "statx", number: unix.SYS_STATX, needed: supervised},
		{name: "memfd_create", number: unix.SYS_MEMFD_CREATE, needed: all},
		{name: "pidfd_open", number: unix.SYS_PIDFD_OPEN, needed: all},
		{name: "clone3", number: unix.SYS_CLONE3, needed: supervised},
		{name: "execveat", number: unix.SYS_EXECVEAT, needed: supervised},
		{name: "faccessat2", number: unix.SYS_FACCESSAT2, needed: []string{"native"}},
		{name: "setns", number: unix.SYS_SETNS, needed: supervised},
		{name: "unshare", number: unix.SYS_UNSHARE, needed: supervised},
		{name: "waitid", number: unix.SYS_WAITID, needed: all},
		{name: "prlimit64", number: unix.SYS_PRLIMIT64, needed: supervised},
		{name: "splice", number: unix.SYS_SPLICE, short: true},
		{name: "pidfd_send_signal", number: unix.SYS_PIDFD_SEND_SIGNAL, short: true},
		{name: "pidfd_getfd", number: unix.SYS_PIDFD_GETFD},
		{name: "fspick", number: unix.SYS_FSPICK},
		{name: "copy_file_range", number: unix.SYS_COPY_FILE_RANGE},
		{name: "renameat2", number: unix.SYS_RENAMEAT2},
		{name: "name_to_handle_at", number: unix.SYS_NAME_TO_HANDLE_AT},
		{name: "kcmp", number: unix.SYS_KCMP},
		{name: "keyctl", number: unix.SYS_KEYCTL},
		{name: "bpf", number: unix.SYS_BPF},
		{name: "ptrace", number: unix.SYS_PTRACE},
		{name: "inotify_init1", number: unix.SYS_INOTIFY_INIT1},
		{name: "epoll_pwait2", number: unix.SYS_EPOLL_PWAIT2},
		{name: "signalfd4", number: unix.SYS_SIGNALFD4},
		{name: "quotactl", number: unix.SYS_QUOTACTL},
		{name: "personality", number: unix.SYS_PERSONALITY},
		{name: "sched_setaffinity", number: unix.SYS_SCHED_SETAFFINITY},
		{name: "sched_setattr", number: unix.SYS_SCHED_SETATTR},
		{name: "sendfile", number: unix.SYS_SENDFILE},
		{name: "tee", number: unix.SYS_TEE},
		{name: "sync_file_range", number: unix.SYS_SYNC_FILE_RANGE},
		{name: "rseq", number: unix.SYS_RSEQ},
		{name: "io_uring_setup", number: unix.SYS_IO_URING_SETUP},
	}
}
