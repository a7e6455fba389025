package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc/rlimit"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// arguments returns the arguments of systemd-nspawn. They turn off everything that is
// intended for a booted system, and everything that needs a systemd on the host.
func (m *making) arguments(p *fork.Process) []string {
	args := []string{
		"--quiet", "--settings=no", "--register=no", "--keep-unit", "--console=pipe",
		"--directory=" + m.image, "--read-only", "--machine=" + m.machine,
		"--link-journal=no", "--resolv-conf=off", "--timezone=off",
		// Init drops the capabilities that the app must not have, after it has mounted.
		"--capability=all",
	}
	if p.New&unix.CLONE_NEWNET != 0 {
		args = append(args, "--private-network")
	}
	// If the spec has no hostname, a new UTS namespace has the host's, as after clone(2).
	// arrive sets it, because systemd-nspawn does not accept every name.
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
	return append(args, "/"+ownName)
}

// limits returns arguments that give the container the supervisor's limits. Without them
// systemd-nspawn would set the limits of a machine's first process.
func limits() []string {
	var args []string
	for _, l := range rlimit.All() {
		args = append(args, "--rlimit="+l.Name+"="+limit(l.Cur)+":"+limit(l.Max))
	}
	return args
}

func limit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "infinity"
	}
	return strconv.FormatUint(n, 10)
}

// environment returns the environment of systemd-nspawn.
func (m *making) environment(p *fork.Process, passed int) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"LISTEN_FDS=" + strconv.Itoa(passed), // execNspawn adds LISTEN_PID
		"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
		"SYSTEMD_SECCOMP=0", // init loads the app's filter
		"SYSTEMD_NSPAWN_LOCK=0",
		"SYSTEMD_NSPAWN_TMPFS_TMP=0",
		// A read-only /proc/sys prevents sysctls from being set. The app's own mounts decide
		// what is read-only for the app.
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
