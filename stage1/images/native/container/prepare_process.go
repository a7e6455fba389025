package container

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// mostGroups is the kernel's NGROUPS_MAX.
const mostGroups = 65536

// parseProcess translates a process, except for its security labels.
func parseProcess(p *specs.Process) (process, error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return process{}, errors.New("process.args: there is no program to execute")
	}
	if !path.IsAbs(p.Cwd) {
		return process{}, fmt.Errorf("process.cwd: %q is not an absolute path", p.Cwd)
	}
	if n := len(p.User.AdditionalGids); n > mostGroups {
		return process{}, fmt.Errorf("process.user.additionalGids: %d groups, and setgroups allows %d", n, mostGroups)
	}
	for _, a := range append(p.Args[:len(p.Args):len(p.Args)], p.Cwd) {
		if strings.ContainsRune(a, 0) {
			return process{}, fmt.Errorf("process.args: %q has a null byte", a)
		}
	}
	r := process{
		Args:            p.Args,
		Cwd:             path.Clean(p.Cwd),
		UID:             p.User.UID,
		GID:             p.User.GID,
		Groups:          p.User.AdditionalGids,
		Umask:           0o022,
		Caps:            parseCapabilities(p.Capabilities),
		NoNewPrivileges: p.NoNewPrivileges,
		OOMScoreAdj:     p.OOMScoreAdj,
	}
	if p.User.Umask != nil {
		r.Umask = *p.User.Umask
	}
	var err error
	if err = r.environment(p.Env); err != nil {
		return r, err
	}
	if r.Rlimits, err = parseRlimits(p.Rlimits); err != nil {
		return r, err
	}
	if r.Scheduler, err = parseScheduler(p.Scheduler); err != nil {
		return r, err
	}
	if r.IOPriority, err = parseIOPriority(p.IOPriority); err != nil {
		return r, err
	}
	r.Self, err = self()
	return r, err
}

// self identifies the program of this process. The link /proc/self/exe of a process that is going to execute
// an app's program still leads to it, and the app's program, or a link in the image, may be that link.
func self() (fork.FileID, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &st); err != nil {
		return fork.FileID{}, fmt.Errorf("look at this program: %w", err)
	}
	return fork.FileID{Dev: uint64(st.Dev), Ino: st.Ino}, nil
}

// environment keeps the last value of each variable, at the position of the first one.
// If there were duplicates, programs would not agree on the value. An empty HOME counts as none.
func (r *process) environment(env []string) error {
	at := make(map[string]int, len(env))
	r.Env = make([]string, 0, len(env)+1)
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return fmt.Errorf("process.env: %q is not NAME=VALUE", e)
		}
		if strings.ContainsRune(e, 0) {
			return fmt.Errorf("process.env: %q has a null byte", e)
		}
		if name == "PATH" {
			r.Path = value
		}
		if i, seen := at[name]; seen {
			r.Env[i] = e
			continue
		}
		at[name] = len(r.Env)
		r.Env = append(r.Env, e)
	}
	i, seen := at["HOME"]
	if r.NoHome = !seen || r.Env[i] == "HOME="; seen && r.NoHome {
		r.Env = slices.Delete(r.Env, i, i+1)
	}
	return nil
}
