package rktabi

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

// The interface versions that added an argument. A program of an earlier version that gets
// the argument prints its usage and ends.
const (
	sinceHostname      = 2
	sinceDisable       = 3
	sinceGCLocalConfig = 5
	sinceIPC           = 6
)

// localConfigVariable is the environment variable of the shim that names rkt's directory of
// local configuration.
const localConfigVariable = "RKT_LOCAL_CONFIG"

// dialect is the stage1.Dialect of interface versions 1 to 6.
type dialect struct{}

// Arguments returns the arguments of the image's interface version, in rkt's order.
func (dialect) Arguments(k *stage1.Call) []string {
	r := &k.Request
	debug := "--debug=" + strconv.FormatBool(r.Debug)
	switch k.Entrypoint {
	case abi.Run:
		return runArguments(k)
	case abi.Stop: // no --debug
		if k.Force {
			return []string{"--force", r.Pod}
		}
		return []string{r.Pod}
	case abi.GC:
		var args []string
		if r.Debug {
			args = append(args, "--debug")
		}
		if dir := os.Getenv(localConfigVariable); dir != "" && k.Stage1.Version() >= sinceGCLocalConfig {
			args = append(args, "--local-config", dir)
		}
		return append(args, r.Pod)
	case abi.Enter: // the caller appends the command
		return []string{"--pid=" + strconv.Itoa(k.Leader), "--appname=" + r.App, "--"}
	case abi.AppAdd:
		return []string{debug, "--uuid=" + r.Pod, "--app=" + r.App}
	}
	return []string{debug, "--app=" + r.App}
}

func runArguments(k *stage1.Call) []string {
	s := k.Stage1
	var args []string
	add := func(wanted bool, arg string) {
		if wanted {
			args = append(args, arg)
		}
	}
	oci := immutable.SpecOf(&k.Call)
	_, ownIPC := spec.Namespace(oci, specs.IPCNamespace)
	localConfig := os.Getenv(localConfigVariable)
	// In an immutable pod the output of `run` is the app's.
	add(k.Request.Debug && s.Mutable(), "--debug")
	// The process that becomes `run` has already entered the pod's network.
	args = append(args, "--net=host")
	add(!s.Mutable() && k.Interactive, "--interactive")
	add(localConfig != "", "--local-config="+localConfig)
	add(s.Version() >= sinceHostname && oci.Hostname != "", "--hostname="+oci.Hostname)
	if s.Version() >= sinceDisable {
		add(appc.Privileged(oci), "--disable-capabilities-restriction")
		add(k.Request.Sandbox == nil && unmasked(oci), "--disable-paths")
	}
	add(s.Mutable(), "--mutable")
	add(s.Version() >= sinceIPC && oci.Linux != nil && !ownIPC, "--ipc=parent")
	return append(args, k.Request.Pod)
}

// unmasked reports whether a spec masks no path of /proc and /sys and makes none read-only.
func unmasked(spec *specs.Spec) bool {
	return spec.Linux != nil && len(spec.Linux.MaskedPaths) == 0 && len(spec.Linux.ReadonlyPaths) == 0
}

// Environment returns the variables that rkt set. An entrypoint that acts in the pod gets
// three variables and no others. `run` also gets the number of the lock's descriptor and
// two labels, which it needs even if they are empty.
func (dialect) Environment(k *stage1.Call) ([]string, error) {
	switch {
	case k.Entrypoint == abi.Run:
		spec := immutable.SpecOf(&k.Call)
		label, mount := "", ""
		if spec.Process != nil {
			label = spec.Process.SelinuxLabel
		}
		if spec.Linux != nil {
			mount = spec.Linux.MountLabel
		}
		return []string{
			"PATH=" + toolPath(k.Dir), fmt.Sprintf("%s=%d", abi.EnvLockFD, abi.LockFD),
			"RKT_SELINUX_CONTEXT=" + label, "RKT_SELINUX_MOUNT_CONTEXT=" + mount,
		}, nil
	case crosses(k.Entrypoint):
		env := []string{"PATH=" + stage1.SearchPath(), abi.EnvEnterCmd + "=" + k.Stage1.EntrypointIn(k.Dir, abi.Enter)}
		if k.Leader != 0 {
			env = append(env, fmt.Sprintf("%s=%d", abi.EnvEnterPID, k.Leader))
		}
		return env, nil
	}
	return []string{"PATH=" + stage1.SearchPath()}, nil
}

// Descriptors leaves out all descriptors above 2 except the lock, because rkt's programs do
// not know the others.
func (dialect) Descriptors(k *stage1.Call) stage1.Inherited {
	return stage1.Inherited{Streams: k.Entrypoint == abi.Enter || k.Entrypoint == abi.Attach}
}

// crosses reports whether an entrypoint acts in the pod, by calling enter.
func crosses(e abi.Entrypoint) bool {
	return e == abi.Attach || strings.HasPrefix(string(e), "app/")
}

// Fields lists the fields of config.json that an image honours. If an image does not
// declare its fields, it honours everything that a manifest can express. rkt's own fly
// honours less: it reads no isolator and has no UTS namespace.
func (dialect) Fields(i *image.Image) []string {
	if pointers, ok := i.Fields(); ok {
		return pointers
	}
	fields := appc.Fields()
	if isFly(i) {
		return []string{
			"/process/args", "/process/cwd", "/process/env", "/process/terminal", "/process/consoleSize",
			"/process/user/uid", "/process/user/gid", "/process/user/additionalGids", "/process/user/username",
			"/root/path", "/mounts/*/destination", "/mounts/*/type", "/mounts/*/source", "/mounts/*/options",
		}
	}
	if i.Version() >= sinceHostname {
		fields = append(fields, "/hostname")
	}
	if i.Mutable() { // stage 0 sets them in the pod's namespaces
		fields = append(fields, "/linux/sysctl")
	}
	return fields
}

// isFly reports whether an image is rkt's own fly.
func isFly(i *image.Image) bool { return path.Base(i.AppcName()) == "stage1-fly" }
