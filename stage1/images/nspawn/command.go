package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork/nofile"
)

// arguments are those of systemd-nspawn. What it would do to a system that it boots,
// and what needs a systemd on the host, is turned off.
func (m *making) arguments(p *fork.Process) []string {
	args := []string{
		"--quiet", "--settings=no", "--register=no", "--keep-unit", "--console=pipe",
		"--directory=" + m.image, "--read-only", "--machine=" + m.machine,
		"--link-journal=no", "--resolv-conf=off", "--timezone=off",
		// Init takes away what the app is not to have. It has to mount first.
		"--capability=all",
	}
	if p.New&unix.CLONE_NEWNET != 0 {
		args = append(args, "--private-network")
	}
	// Without a wish for one, a new UTS namespace has the host's name, as with clone(2).
	// systemd-nspawn does not take every name that there is, so arrive sets it.
	if name, err := os.Hostname(); err == nil && p.New&unix.CLONE_NEWUTS != 0 {
		args = append(args, "--setenv="+hostnameVariable+"="+name)
	}
	if m.pids != nil {
		args = append(args, "--setenv="+pidsVariable+"=1")
	}
	if m.host {
		args = append(args, "--setenv="+hostVariable+"=1")
	}
	args = append(args, limits()...)
	return append(args, "/usr/bin/"+initName)
}

// limits keep the supervisor's limits in the container, whose own would be those that
// the kernel gives to the first process of a machine.
func limits() []string {
	var args []string
	for i, name := range []string{
		"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
		"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
	} {
		var l unix.Rlimit
		if unix.Getrlimit(i, &l) != nil {
			continue
		}
		if i == unix.RLIMIT_NOFILE {
			l.Cur, l.Max = nofile.Original[0], nofile.Original[1]
		}
		args = append(args, "--rlimit="+name+"="+limit(l.Cur)+":"+limit(l.Max))
	}
	return args
}

func limit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "infinity"
	}
	return strconv.FormatUint(n, 10)
}

// environment is that of systemd-nspawn.
func (m *making) environment(p *fork.Process, passed int) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"LISTEN_FDS=" + strconv.Itoa(passed), // the launcher adds LISTEN_PID
		"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
		"SYSTEMD_SECCOMP=0", // init has the app's filter
		"SYSTEMD_NSPAWN_LOCK=0",
		"SYSTEMD_NSPAWN_TMPFS_TMP=0",
		// A sysfs that is mounted read-only first is so for the whole network namespace,
		// and a read-only /proc/sys keeps sysctls from being set. Which of them are so
		// for the app is a matter of its own mounts.
		"SYSTEMD_NSPAWN_API_VFS_WRITABLE=1",
		"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=" + m.group.unified(),
	}
	for flag, variable := range map[uintptr]string{unix.CLONE_NEWPID: "PID", unix.CLONE_NEWIPC: "IPC", unix.CLONE_NEWUTS: "UTS"} {
		if p.New&flag == 0 {
			env = append(env, "SYSTEMD_NSPAWN_SHARE_NS_"+variable+"=1")
		}
	}
	return env
}
