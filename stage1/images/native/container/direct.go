package container

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// Program returns the program of an exec in the form in which package fork executes it without
// Init. If only Init can do what the exec asks for, Program returns nil and what that is.
func (p *Prepared) Program() (program *fork.Program, why string) {
	c, r := p.config, &p.config.Process
	if why := firstOf([]reason{
		{"an app without a mount namespace", c.Chroot != 0},
		{"an SELinux label", r.SELinux != ""},
		{"a personality", c.Personality != nil},
		{"a memory policy", c.MemoryPolicy != nil},
		{"a scheduling policy", r.Scheduler != nil},
		{"an I/O priority", r.IOPriority != nil},
		{"a CPU affinity", len(r.InitialCPUs)+len(r.FinalCPUs) > 0},
		{"a seccomp agent", c.SeccompFlags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0},
	}); why != "" {
		return nil, why
	}
	program = &fork.Program{
		Keyring:         c.Keyring,
		Terminal:        c.Terminal,
		Home:            r.NoHome,
		NoNewPrivileges: r.NoNewPrivileges,
		Dir:             r.Cwd,
		UID:             r.UID,
		GID:             r.GID,
		Groups:          r.Groups,
		Capabilities:    fork.Capabilities(r.Caps),
		Paths:           []string{r.Args[0]},
		Not:             r.Self,
		Umask:           r.Umask,
		Filter:          c.Seccomp,
		FilterFlags:     c.SeccompFlags,
		Args:            r.Args,
		Env:             r.Env,
	}
	if c.ConsoleSize != nil {
		program.Size = &unix.Winsize{Row: uint16(c.ConsoleSize.Height), Col: uint16(c.ConsoleSize.Width)}
	}
	if !strings.Contains(r.Args[0], "/") {
		program.Paths = directories(r.Path)
		for i, dir := range program.Paths {
			program.Paths[i] = dir + "/" + r.Args[0]
		}
	}
	for _, l := range withFiles(r.Rlimits) {
		program.Limits = append(program.Limits, fork.Limit{Resource: l.Resource, Rlimit: unix.Rlimit{Cur: l.Soft, Max: l.Hard}})
	}
	if r.AppArmor != "" {
		procfs, err := p.openProc()
		if err != nil {
			return nil, err.Error()
		}
		program.Label = &fork.Label{Proc: procfs, Names: [2]string{"attr/apparmor/exec", "attr/exec"}, Value: "exec " + r.AppArmor}
	}
	return program, ""
}

// reason is something that only Init can do.
type reason struct {
	what string
	set  bool
}

// firstOf returns the first reason that is set, or "".
func firstOf(reasons []reason) string {
	for _, r := range reasons {
		if r.set {
			return r.what
		}
	}
	return ""
}

// First returns what Program returns, for the first process of an app whose root a Builder makes.
func (p *Prepared) First() (program *fork.Program, why string) {
	c := p.config
	first := &fork.First{CgroupNamespace: c.CgroupNamespace}
	special, copies := false, false // a procfs
	paths := slices.Concat(c.Masked, c.Readonly)
	for _, m := range c.Mounts {
		paths = append(paths, m.Destination)
		copies = copies || m.CopyUp
		if m.newProcfs() {
			first.Procfs++
			special = special || m.aside()
		}
	}
	if why := firstOf([]reason{
		{"a user namespace", c.UserNamespace},
		{"no mount namespace of its own", c.Rootfs.Chroot || c.Rootfs.File != 0},
		{"no pivot_root", c.Rootfs.NoPivotRoot},
		{"a terminal", c.Terminal},
		{"hooks", c.RuntimeHooks || c.Hooks != nil},
		{"network devices", c.NetDevices},
		{"options of a procfs", special},
		{"a tmpfs with files of the image", copies}, // to copy them takes the app's memory, and may take long
		{"a path of the process's own", slices.ContainsFunc(paths, func(p string) bool {
			return strings.HasPrefix(p, "/proc/self") || strings.HasPrefix(p, "/proc/thread-self")
		})},
	}); why != "" {
		return nil, why
	}
	if program, why = p.Program(); program != nil {
		program.First = first
	}
	return program, why
}

// openProc opens the host's procfs. Close closes it. It is not one of Files, so Init does not
// get it.
func (p *Prepared) openProc() (*os.File, error) {
	f, err := os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	p.own = append(p.own, f)
	return f, checkRoot(int(f.Fd()), unix.PROC_SUPER_MAGIC, "/proc is not the root of a procfs")
}
