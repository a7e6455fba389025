package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// kernelFields are about namespaces and about what the kernel allows a program.
func kernelFields(v *values) []honoured {
	return []honoured{
		{name: "network-namespace", sentence: "the network namespace is its app's own", fields: []string{"/linux/namespaces/*/type"},
			ask: namespace(specs.NetworkNamespace), facts: []fact{ownNamespace("net")}},
		{name: "network-devices", sentence: "the network devices of the spec are in the app's network namespace, by the names of the spec",
			fields: []string{"/linux/netDevices/*/name"}, ask: askDevice, with: (*trial).withDevice,
			facts: []fact{has("file /proc/net/dev", movedDevice+":")}, missing: noTunnels},
		{name: "cgroup-namespace", sentence: "the cgroup namespace is its app's own", fields: []string{"/linux/namespaces/*/type"},
			ask: namespace(specs.CgroupNamespace), facts: []fact{ownNamespace("cgroup")}},
		{name: "clocks", sentence: "the clocks have the offsets of the spec, in a time namespace",
			fields: []string{"/linux/timeOffsets/*/secs", "/linux/timeOffsets/*/nanosecs"},
			ask: func(s *specs.Spec) {
				namespace(specs.TimeNamespace)(s)
				s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: v.offset, Nanosecs: 5}}
			},
			facts: []fact{ownNamespace("time"), has("file /proc/self/timens_offsets", fmt.Sprintf("boottime %d 5", v.offset))},
			missing: func() string {
				if _, err := os.Stat("/proc/self/ns/time"); err != nil {
					return "the kernel has no time namespaces"
				}
				return ""
			}},
		{name: "sysctl", sentence: "the kernel's settings are those of the spec", fields: []string{"/linux/sysctl/*"},
			ask: func(s *specs.Spec) {
				namespace(specs.IPCNamespace)(s)
				s.Linux.Sysctl = map[string]string{v.sysctl: v.sysctlValue}
			},
			facts: []fact{is("file "+sysctlFile(v.sysctl), v.sysctlValue)}},
		{name: "devices", sentence: "the devices of the spec are there, with their owners and modes",
			fields: []string{"/linux/devices/*/path", "/linux/devices/*/type", "/linux/devices/*/major", "/linux/devices/*/minor",
				"/linux/devices/*/fileMode", "/linux/devices/*/uid", "/linux/devices/*/gid"},
			ask: func(s *specs.Spec) {
				s.Linux.Devices = []specs.LinuxDevice{v.device}
			},
			facts: []fact{is("stat "+v.device.Path, fmt.Sprintf("c 1:%d %04o %d:%d", v.device.Minor, *v.device.FileMode, *v.device.UID, *v.device.GID))}},
		{name: "seccomp", about: "seccomp", sentence: "the system calls that the filter names fail as it says, and others do not",
			fields: []string{"/linux/seccomp/syscalls/*/names", "/linux/seccomp/syscalls/*/action", "/linux/seccomp/syscalls/*/errnoRet",
				"/linux/seccomp/syscalls/*/args/*/index", "/linux/seccomp/syscalls/*/args/*/value", "/linux/seccomp/syscalls/*/args/*/valueTwo",
				"/linux/seccomp/syscalls/*/args/*/op"},
			ask: v.askSeccomp,
			facts: []fact{
				is("status Seccomp", "2"), is("call "+v.deniedCall+" 0", errnoName(v.errnoOfRule)), is("call "+v.otherCall+" 0", "done"),
				is(fmt.Sprintf("call getpriority 0 %d", v.maskedArgument+1+v.matchedArgument), errnoName(v.errnoOfArgument)),
				is("call getpriority 0 0", "done"),
			}},
		{name: "seccomp-plain", about: "seccomp", sentence: "the system calls that the filter names fail as the kernel says by default, and others do not",
			fields: []string{"/linux/seccomp/syscalls/*/names", "/linux/seccomp/syscalls/*/action"},
			ask: func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{
					DefaultAction: specs.ActAllow, Architectures: architecture(),
					Syscalls: []specs.LinuxSyscall{{Names: []string{v.deniedCall}, Action: specs.ActErrno}},
				}
			},
			facts: []fact{is("status Seccomp", "2"), is("call "+v.deniedCall+" 0", "EPERM"), is("call getpriority 0 0", "done")}},
		{name: "seccomp-default", about: "seccomp", sentence: "a system call that the filter does not name fails as it says",
			fields: []string{"/linux/seccomp/defaultAction", "/linux/seccomp/defaultErrnoRet"},
			ask: func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{
					DefaultAction: specs.ActErrno, DefaultErrnoRet: new(v.errnoOfRule), Architectures: architecture(),
					Syscalls: []specs.LinuxSyscall{{Names: strings.Fields(neededCalls), Action: specs.ActAllow}},
				}
			},
			facts: []fact{is("call getpriority 0 0", errnoName(v.errnoOfRule)), is("call getsid 0", "done")}},
		{name: "seccomp-agent", about: "seccomp", sentence: "a system call that the filter leaves to an agent ends as the agent says",
			fields: []string{"/linux/seccomp/listenerPath", "/linux/seccomp/listenerMetadata"},
			ask:    v.askAgent, with: (*trial).withAgent, facts: []fact{is("call "+v.deniedCall+" 0", errnoName(v.errnoOfRule))}},
		{name: "personality", sentence: "the execution domain is the spec's", fields: []string{"/linux/personality/domain"},
			ask:   func(s *specs.Spec) { s.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32} },
			facts: []fact{is("personality", "0x8")}},
		{name: "memory-policy", sentence: "memory comes from the nodes of the spec",
			fields: []string{"/linux/memoryPolicy/mode", "/linux/memoryPolicy/nodes", "/linux/memoryPolicy/flags"},
			ask: func(s *specs.Spec) {
				s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: specs.MpolInterleave, Nodes: "0", Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}}
			},
			facts: []fact{is("memory-policy", fmt.Sprintf("%#x 0x1", policyOfNode0))}, missing: noPolicies},
	}
}

// sysctlFile returns the path of a kernel setting.
func sysctlFile(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// policyOfNode0 is the mode of a memory policy that takes memory from node 0.
const policyOfNode0 = unix.MPOL_INTERLEAVE | unix.MPOL_F_STATIC_NODES

// noPolicies returns the reason why no process can have that policy, or "".
func noPolicies() string {
	var nodes unix.CPUSet
	nodes.Set(0)
	if err := proc.OnThread(func() error { return unix.SetMemPolicy(policyOfNode0, &nodes) }); err != nil {
		return fmt.Sprintf("the kernel has no memory policies, or node 0 has no memory: %s", err)
	}
	return ""
}

// namespace returns a change of a spec that asks for a namespace, unless the spec has it
// already.
func namespace(kind specs.LinuxNamespaceType) func(*specs.Spec) {
	return func(s *specs.Spec) {
		for _, n := range s.Linux.Namespaces {
			if n.Type == kind {
				return
			}
		}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
}

func (v *values) askSeccomp(s *specs.Spec) {
	s.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: architecture(),
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{v.deniedCall}, Action: specs.ActErrno, ErrnoRet: new(v.errnoOfRule)},
			{Names: []string{"getpriority"}, Action: specs.ActErrno, ErrnoRet: new(v.errnoOfArgument),
				Args: []specs.LinuxSeccompArg{{Index: 1, Value: v.maskedArgument, ValueTwo: v.matchedArgument, Op: specs.OpMaskedEqual}}},
		},
	}
}

func architecture() []specs.Arch {
	arch, known := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64, "riscv64": specs.ArchRISCV64, "s390x": specs.ArchS390X, "ppc64le": specs.ArchPPC64LE}[runtime.GOARCH]
	if !known {
		return nil
	}
	return []specs.Arch{arch}
}

// neededCalls are the system calls that the kit's program makes, and those that a stage1
// makes between loading the filter and the exec.
const neededCalls = `
	accept4 access arch_prctl brk capget capset chdir chmod chown clock_gettime clock_nanosleep clone
	clone3 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create1 epoll_ctl
	epoll_pwait epoll_wait eventfd2 execve execveat exit exit_group faccessat faccessat2 fallocate
	fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flock fork fsetxattr fstat fstatfs
	fsync ftruncate futex getcwd getdents getdents64 getegid geteuid getgid getgroups getpgid getpgrp
	getpid getppid getrandom getresgid getresuid getrlimit getrusage getsid getsockopt gettid
	gettimeofday getuid getxattr ioctl ioprio_set keyctl kill lgetxattr link lseek lstat madvise
	membarrier memfd_create mincore mkdir mkdirat mknodat mmap mount mprotect mremap munmap nanosleep
	newfstatat open openat openat2 personality pidfd_open pidfd_send_signal pipe pipe2 poll ppoll prctl
	pread64 prlimit64 pselect6 pwrite64 read readlink readlinkat readv recvfrom recvmsg rename renameat
	renameat2 restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
	rt_sigtimedwait sched_getaffinity sched_setaffinity sched_setattr sched_setscheduler sched_yield
	seccomp select sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid setgroups
	setns setpgid setresgid setresuid setrlimit setsid setsockopt setuid setxattr sigaltstack signalfd4
	socket socketpair stat statfs statx symlink symlinkat sysinfo tgkill timer_create timer_delete
	timer_settime times tkill umask umount2 uname unlink unlinkat unshare utimensat vfork wait4 waitid
	write writev`
