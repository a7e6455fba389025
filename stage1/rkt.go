package stage1

import (
	"cmp"
	"encoding/json"
	"os"
	"path"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/appc"
)

// The interface versions that added an argument. What an image's version does not
// know is not sent: its programs end with a usage text.
const (
	sinceHostname      = 2
	sinceDisable       = 3
	sinceGCLocalConfig = 5
	sinceIPC           = 6
)

// localConfigVariable of the shim's environment names rkt's directory of local
// configuration, for images of rkt's that read one.
const localConfigVariable = "RKT_LOCAL_CONFIG"

// rktArguments returns the arguments of an image's own version, behind argv[0], in
// rkt's order.
func (k *call) rktArguments() []string {
	r := &k.Request
	debug := "--debug=" + strconv.FormatBool(r.Debug)
	switch k.entrypoint {
	case abi.Run:
		return k.rktRunArguments()
	case abi.Stop: // knows no --debug
		if k.Force {
			return []string{"--force", r.Pod}
		}
		return []string{r.Pod}
	case abi.GC:
		var args []string
		if r.Debug {
			args = append(args, "--debug")
		}
		if dir := os.Getenv(localConfigVariable); dir != "" && k.stage1.Version() >= sinceGCLocalConfig {
			args = append(args, "--local-config", dir)
		}
		return append(args, r.Pod)
	case abi.Enter: // whoever calls it appends the command
		return []string{"--pid=" + strconv.Itoa(k.Leader), "--appname=" + r.App, "--"}
	case abi.AppAdd:
		return []string{debug, "--uuid=" + r.Pod, "--app=" + r.App}
	}
	return []string{debug, "--app=" + r.App}
}

func (k *call) rktRunArguments() []string {
	s := k.stage1
	var args []string
	add := func(wanted bool, arg string) {
		if wanted {
			args = append(args, arg)
		}
	}
	spec := specOf(&k.Request)
	localConfig := os.Getenv(localConfigVariable)
	// What `run` of an immutable pod writes is seen as the app's.
	add(k.Request.Debug && s.Mutable(), "--debug")
	// Whatever network the pod has, its first process is in it already.
	args = append(args, "--net=host")
	add(!s.Mutable() && k.interactive, "--interactive")
	add(localConfig != "", "--local-config="+localConfig)
	add(s.Version() >= sinceHostname && spec.Hostname != "", "--hostname="+spec.Hostname)
	if s.Version() >= sinceDisable {
		add(appc.Privileged(spec), "--disable-capabilities-restriction")
		add(k.Request.Sandbox == nil && unmasked(spec), "--disable-paths")
	}
	add(s.Mutable(), "--mutable")
	add(s.Version() >= sinceIPC && sharesIPC(spec), "--ipc=parent")
	return append(args, k.Request.Pod)
}

// specOf returns the spec of the app that `run` executes, or an empty one of a
// mutable pod, which has none yet.
func specOf(r *abi.Request) *specs.Spec {
	spec := &specs.Spec{}
	if len(r.Spec) > 0 {
		_ = json.Unmarshal(r.Spec, spec) // the pod has read it before
	}
	return spec
}

// unmasked tells whether a spec hides nothing of /proc and /sys.
func unmasked(spec *specs.Spec) bool {
	return spec.Linux != nil && len(spec.Linux.MaskedPaths) == 0 && len(spec.Linux.ReadonlyPaths) == 0
}

func sharesIPC(spec *specs.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.IPCNamespace {
			return false
		}
	}
	return true
}

// rktEnvironment returns the variables that rkt gave: to what crosses into the pod
// exactly three; to `run` also the lock's number and two labels, which it needs to
// find even if they are empty.
func (k *call) rktEnvironment() []string {
	e := environment{"PATH=" + searchPath()}
	switch {
	case k.entrypoint == abi.Run:
		e[0] = "PATH=" + toolPath(k.Dir)
		e.setInt(abi.EnvLockFD, abi.LockFD)
		spec := specOf(&k.Request)
		label, mount := "", ""
		if spec.Process != nil {
			label = spec.Process.SelinuxLabel
		}
		if spec.Linux != nil {
			mount = spec.Linux.MountLabel
		}
		e = append(e, "RKT_SELINUX_CONTEXT="+label, "RKT_SELINUX_MOUNT_CONTEXT="+mount)
	case crosses(k.entrypoint):
		e.set(abi.EnvEnterCmd, k.stage1.entrypoint(k.Dir, abi.Enter))
		e.setInt(abi.EnvEnterPID, k.Leader)
	}
	return e
}

// crosses tells whether an entrypoint acts in the pod, by means of enter.
func crosses(e abi.Entrypoint) bool {
	return e == abi.Attach || strings.HasPrefix(string(e), "app/")
}

// ownFields lists the fields of config.json that an image honours. One of rkt's says
// nothing of that: what its manifests have words for, it was made to honour. rkt's
// own fly is known to read no isolator, and has no UTS namespace.
func (s *Stage1) ownFields() []string {
	if pointers, ok := s.Fields(); ok || !s.Rkts() {
		return pointers
	}
	fields := appc.Fields()
	if s.isFly() {
		return []string{
			"/process/args", "/process/cwd", "/process/env", "/process/terminal", "/process/consoleSize",
			"/process/user/uid", "/process/user/gid", "/process/user/additionalGids", "/process/user/username",
			"/root/path", "/mounts/*/destination", "/mounts/*/type", "/mounts/*/source", "/mounts/*/options",
		}
	}
	if s.Version() >= sinceHostname {
		fields = append(fields, "/hostname")
	}
	if s.Mutable() { // stage 0 sets them in the pod's namespaces
		fields = append(fields, "/linux/sysctl")
	}
	return fields
}

// isFly tells whether an image is rkt's own fly.
func (s *Stage1) isFly() bool { return s.Rkts() && path.Base(s.AppcName()) == "stage1-fly" }

// mayIgnore tells whether a field is excused.
func (s *Stage1) mayIgnore(pointer string) bool {
	f := s.excused
	for _, word := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if f == nil || f.covered {
			break
		}
		next := f.next[word]
		if word == "*" {
			next = f.any
		}
		f = cmp.Or(next, f.any)
	}
	return f != nil && f.covered
}
