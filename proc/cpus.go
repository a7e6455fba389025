package proc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// UseAllCPUs lets this thread run on each CPU that its cgroups allow, as runc does (since 1.2.7) for the processes
// of containers. They would have inherited the affinity of containerd, which may be that of
// the host's own processes, and which the kernel keeps (since Linux 6.2) when it moves a process into a cgroup.
//
// It is no error if the affinity cannot be changed, for example because a seccomp filter forbids it: no limit
// depends on it.
func UseAllCPUs() {
	var all [8192 / 64]uint64 // CONFIG_NR_CPUS is at most 8192
	for i := range all {
		all[i] = ^uint64(0)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(all), uintptr(unsafe.Pointer(&all)))
}
