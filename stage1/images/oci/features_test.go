package oci

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

func TestWhatRuncDropsInSilenceIsRefusedByName(t *testing.T) {
	p := newPod(t, "")
	for field, text := range map[string]string{
		"/domainname":              `{"domainname":"x"}`,
		"/process/scheduler":       `{"process":{"scheduler":{"policy":"SCHED_BATCH"}}}`,
		"/process/ioPriority":      `{"process":{"ioPriority":{"class":"IOPRIO_CLASS_IDLE","priority":7}}}`,
		"/process/execCPUAffinity": `{"process":{"execCPUAffinity":{"initial":"0"}}}`,
		"/mounts/1/uidMappings":    `{"mounts":[{"destination":"/a"},{"destination":"/b","uidMappings":[{"size":1}]}]}`,
		"/mounts/0/gidMappings":    `{"mounts":[{"destination":"/b","gidMappings":[{"size":1}]}]}`,
		"/hooks/poststart":         `{"hooks":{"poststart":[{"path":"/x"}]}}`,
		"/linux/intelRdt":          `{"linux":{"intelRdt":{"closID":"x"}}}`,
		"/linux/memoryPolicy":      `{"linux":{"memoryPolicy":{"mode":"MPOL_LOCAL"}}}`,
		"/linux/netDevices":        `{"linux":{"netDevices":{"eth0":{}}}}`,
		"/linux/personality":       `{"linux":{"personality":{"domain":"LINUX32"}}}`,
		"/linux/seccomp/flags":     `{"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ALLOW","flags":["SECCOMP_FILTER_FLAG_LOG"]}}}`,
		"/linux/timeOffsets":       `{"linux":{"timeOffsets":{"boottime":{"secs":1}}}}`,
	} {
		app, err := spec.Read[specs.Spec]([]byte(text))
		must(t, err)
		if _, err := p.CheckSpec(app); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), " "+field+",") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// The features document declares what runc declares of itself, except for features
// that runc implements differently from the OCI specification.
func TestTheFeaturesAreThoseOfRunc(t *testing.T) {
	p := newPod(t, "") // or there is no runc
	release := children.Expect()
	out, err := exec.Command("runc", "features").Output()
	release()
	must(t, err)
	var own, runc map[string]any
	must(t, json.Unmarshal(out, &runc))
	if v, _ := runc["annotations"].(map[string]any)["org.opencontainers.runc.version"].(string); !strings.HasPrefix(v, "1.1.") {
		t.Skipf("this machine has runc %s, and the document is of 1.1", v)
	}
	must(t, json.Unmarshal(p.OCIFeatures(), &own))
	delete(runc, "annotations")
	runc["hooks"] = slices.DeleteFunc(runc["hooks"].([]any), func(h any) bool { return h == "poststart" }) // run before the start
	linux := runc["linux"].(map[string]any)
	linux["cgroup"] = map[string]any{"v1": true, "v2": true} // stage 0 makes them
	// runc does not know these features, so its output does not have them.
	disabled := map[string]any{"enabled": false}
	linux["intelRdt"], linux["netDevices"] = disabled, disabled
	linux["mountExtensions"] = map[string]any{"idmap": disabled}
	if !reflect.DeepEqual(own, runc) {
		t.Errorf("the document says\n\t%v, want\n\t%v", own, runc)
	}
}

func TestTheIdmapOptionIsRefusedWhereverItIs(t *testing.T) {
	p := startPod(t)
	for _, option := range []string{"idmap", "ridmap"} {
		a := p.app("web", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp", Source: "/tmp", Options: []string{"rbind", option, "ro"}})
		}, "true")
		if text := expectCode(t, option, abi.ExitNotImplemented, a.tryAdd(p.patience)); !strings.Contains(text, "/mounts") || !strings.Contains(text, "idmap") {
			t.Errorf("%s: %q", option, text)
		}
		must(t, a.group.Remove(p.patience))
	}
	// These are arguments and values of an app, and no options of a mount.
	a := p.app("web", func(s *specs.Spec) { s.Annotations = map[string]string{"options": `"options":["idmap"]`} }, "sh", "-c", "true", "idmap", `"options":["idmap"]`)
	a.start()
	a.ends(t, 0)
}

func TestOptionsOfTheRequestReachTheRuntime(t *testing.T) {
	argv := filepath.Join(t.TempDir(), "argv")
	before(t, `echo "$@" >>`+argv)
	p := startPod(t)
	for flags, options := range map[string]*abi.Options{
		"":                             {},
		" --no-pivot":                  {NoPivotRoot: true},
		" --no-new-keyring":            {NoNewKeyring: true},
		" --no-pivot --no-new-keyring": {NoPivotRoot: true, NoNewKeyring: true, IoUID: 7},
	} {
		_ = os.Remove(argv)
		a := p.app("web", nil, "true")
		a.call.Request.Options = options
		a.add()
		b, err := os.ReadFile(argv)
		if err != nil || !strings.HasSuffix(string(b), flags+" "+container("web")+"\n") || strings.Count(string(b), "--no-") != strings.Count(flags, "--no-") {
			t.Errorf("with %+v the runtime was called as %q (%v), want %q", options, b, err, flags)
		}
		p.expect(0, abi.AppStop, "web")
		p.expect(0, abi.AppRm, "web")
		a.ends(t, 137)
		must(t, a.group.Remove(p.patience))
	}
}

func TestHooksRunOnceInOrderAndReadTheContainersID(t *testing.T) {
	p := startPod(t)
	log := filepath.Join(p.root, "log") // seen from inside, too
	hook := func(kind, to string) []specs.Hook {
		return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", `read state; echo ` + kind + ` "$state" >>` + to}}}
	}
	a := p.app("web", func(s *specs.Spec) {
		s.Annotations = map[string]string{"colour": "blue"}
		s.Hooks = &specs.Hooks{
			Prestart: hook("prestart", log), CreateRuntime: hook("createRuntime", log),
			CreateContainer: hook("createContainer", log), StartContainer: hook("startContainer", "/log"),
		}
	}, "sh", "-c", "echo the program >>/log")
	a.add()
	expectHooks(t, log, a, "prestart creating", "createRuntime creating", "createContainer creating")
	p.expect(0, abi.AppStart, "web")
	a.ends(t, 0)
	expectHooks(t, log, a, "prestart creating", "createRuntime creating", "createContainer creating", "startContainer created", "the program")
}

// expectHooks compares what was logged: kinds of hooks, and the states they read.
func expectHooks(t *testing.T, log string, a *testApp, want ...string) {
	t.Helper()
	b, err := os.ReadFile(log)
	must(t, err)
	var got []string
	for line := range strings.Lines(string(b)) {
		kind, document, ok := strings.Cut(strings.TrimSpace(line), " {")
		if !ok {
			got = append(got, kind)
			continue
		}
		var s specs.State
		must(t, json.Unmarshal([]byte("{"+document), &s))
		got = append(got, kind+" "+string(s.Status))
		if s.ID != container("web") || s.Bundle != a.call.Request.Bundle || s.Annotations["colour"] != "blue" {
			t.Errorf("%s read %+v", kind, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("hooks %q, want %q", got, want)
	}
}

func TestTheListenerOfASeccompProfileGetsItsDescriptor(t *testing.T) {
	p := startPod(t)
	path := filepath.Join(t.TempDir(), "listener")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	defer l.Close()
	must(t, l.SetDeadline(time.Now().Add(wait.Patience)))
	a := p.app("web", func(s *specs.Spec) {
		s.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: "SCMP_ACT_ALLOW", ListenerPath: path, ListenerMetadata: "some words",
			Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: "SCMP_ACT_NOTIFY"}},
		}
	}, "true")
	added := make(chan error)
	go func() { added <- a.tryAdd(p.patience) }()
	conn, err := l.AcceptUnix()
	must(t, err)
	defer conn.Close()
	text, rights := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(text, rights)
	must(t, err)
	must(t, <-added)
	var state specs.ContainerProcessState
	must(t, json.Unmarshal(text[:n], &state))
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	must(t, err)
	if len(messages) != 1 || state.Metadata != "some words" || state.State.ID != container("web") {
		t.Errorf("%d messages with %+v", len(messages), state)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		must(t, err)
		for _, fd := range fds {
			must(t, unix.Close(fd))
		}
	}
	p.expect(0, abi.AppStart, "web")
	a.ends(t, 0)
}

func TestTheUserOfAnAppReadsAndWritesItsStreams(t *testing.T) {
	p := startPod(t)
	out, stdout := pipe(t)
	a := p.app("web", func(s *specs.Spec) { s.Process.User = specs.User{UID: 1234, GID: 4321, Umask: ptr(uint32(0o27))} },
		"sh", "-c", "id -u; id -g; umask; echo again >/proc/self/fd/1")
	a.start(nil, stdout, nil)
	stdout.Close()
	a.ends(t, 0)
	if b, err := io.ReadAll(out); err != nil || string(b) != "1234\n4321\n0027\nagain\n" {
		t.Errorf("it wrote %q (%v)", b, err)
	}
}
