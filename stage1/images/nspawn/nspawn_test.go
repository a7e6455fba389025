package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

type features struct {
	OCI    map[string]any `json:"oci"`
	Fields []string       `json:"fields"`
}

func readFeatures(t *testing.T, path string) features {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	var f features
	must(t, json.Unmarshal(b, &f))
	return f
}

// For everything except the container itself, which systemd-nspawn makes, the code is
// native's.
func TestTheFeaturesAreThoseOfNativeButForNamespaces(t *testing.T) {
	native, own := readFeatures(t, "../native/features.json"), readFeatures(t, "features.json")
	without := func(list any, words ...string) []any {
		return slices.DeleteFunc(list.([]any), func(w any) bool { return slices.Contains(words, w.(string)) })
	}
	linux := native.OCI["linux"].(map[string]any)
	linux["namespaces"] = without(linux["namespaces"], "user", "time")
	native.Fields = slices.DeleteFunc(native.Fields, func(f string) bool {
		return slices.Contains([]string{"/linux/uidMappings", "/linux/gidMappings", "/linux/timeOffsets"}, f)
	})
	if !reflect.DeepEqual(own, native) {
		t.Errorf("the document says\n\t%v\n\t%v, want\n\t%v\n\t%v", own.OCI, own.Fields, native.OCI, native.Fields)
	}
}

func TestWhatSystemdNspawnCannotMakeIsRefusedByName(t *testing.T) {
	p := startPod(t)
	namespace := func(n specs.LinuxNamespace) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(o specs.LinuxNamespace) bool { return o.Type == n.Type })
			s.Linux.Namespaces = append(s.Linux.Namespaces, n)
		}
	}
	p.fails(abi.ExitNotImplemented, `"time" is not supported`, namespace(specs.LinuxNamespace{Type: specs.TimeNamespace}))
	elsewhere := exec.Command("unshare", "--mount", "sh", "-c", "echo; exec sleep 1000")
	said, err := elsewhere.StdoutPipe()
	must(t, err)
	must(t, elsewhere.Start())
	defer func() { _ = elsewhere.Process.Kill(); _ = elsewhere.Wait() }()
	_, err = said.Read(make([]byte, 1))
	must(t, err)
	mounts := fmt.Sprintf("/proc/%d/ns/mnt", elsewhere.Process.Pid)
	p.fails(abi.ExitNotImplemented, "has a new mount namespace", namespace(specs.LinuxNamespace{Type: specs.MountNamespace, Path: mounts}))
	for field, text := range map[string]string{
		"/linux/uidMappings": `{"linux":{"uidMappings":[{"size":1}]}}`,
		"/linux/timeOffsets": `{"linux":{"timeOffsets":{"boottime":{"secs":1}}}}`,
	} {
		app, err := spec.Read[specs.Spec]([]byte(text))
		must(t, err)
		if _, err := p.CheckSpec(app); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), " "+field+",") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestWithoutSystemdNspawnTheErrorSaysWhatToInstall(t *testing.T) {
	p := newPod(t)
	t.Setenv("PATH", t.TempDir())
	p.run()
	p.fails(1, "install systemd-container", nil)
}

func TestAFailureOfSystemdNspawnIsTold(t *testing.T) {
	p := newPod(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/busybox sh\necho the egg is addled >&2; exit 3\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p.run()
	p.fails(1, "no container was made (exit status 3): the egg is addled", nil)
}

func TestAnAppIsAsCloneWouldHaveLeftIt(t *testing.T) {
	p := startPod(t)
	before := cgroups()
	host, err := os.Hostname()
	must(t, err)
	var files unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_CORE, &files))
	core := map[bool]string{true: "unlimited", false: fmt.Sprint(files.Cur / 512)}[files.Cur == unix.RLIM_INFINITY]
	script := `hostname; ulimit -c; cat /proc/sys/net/ipv4/ip_forward; echo $$; ls /; env | busybox sort`
	script = strings.NewReplacer("hostname", "busybox hostname", "cat", "busybox cat", "ls /", "busybox ls /", "env", "busybox env").Replace(script)
	got := p.says("web", func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1"} }, script)
	if want := host + "\n" + core + "\n1\n1\nbin\ndev\nproc\nHOME=/\nPATH=/bin\nPWD=/\nSHLVL=1\n"; got != want {
		t.Errorf("the app sees\n%s, want\n%s", got, want)
	}
	if after := cgroups(); !slices.Equal(before, after) {
		t.Errorf("cgroups left: %v, before the test %v", after, before)
	}
}

// cgroups lists the cgroups that systemd-nspawn makes by default.
func cgroups() []string {
	payload, _ := filepath.Glob("/sys/fs/cgroup/*/payload")
	supervisor, _ := filepath.Glob("/sys/fs/cgroup/*/supervisor")
	return append(payload, supervisor...)
}

// The hook is in the container's namespaces, the app's mounts are there, and the host's
// files as well. The app itself has nothing of them.
func TestCreateContainerHooksSeeTheHostsFiles(t *testing.T) {
	p := startPod(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of the host\n"), 0o644))
	lower := filepath.Join(dir, "lower")
	must(t, os.Mkdir(lower, 0o755))
	must(t, os.WriteFile(filepath.Join(lower, "file"), []byte("of a layer\n"), 0o644))
	words := fmt.Sprintf("%s cat %s/file %s/proc/1/comm; %s readlink /proc/self/ns/mnt", busybox, dir, p.root, busybox)
	got := p.says("web", func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{Path: busybox, Args: []string{"sh", "-c", "{ " + words + "; } >" + dir + "/said 2>&1"}}}}
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/layers", Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + lower + ":" + p.root}})
	}, "busybox readlink /proc/self/ns/mnt; busybox cat /layers/file; busybox ls /; busybox cat /proc/mounts | busybox grep -c '^[^ ]* / '")
	space, rest, _ := strings.Cut(got, "\n")
	if want := "of a layer\nbin\ndev\nlayers\nproc\n1\n"; rest != want {
		t.Errorf("the app sees %q, want %q", rest, want)
	}
	said, err := os.ReadFile(filepath.Join(dir, "said"))
	must(t, err)
	if want := "of the host\nnspawn\n" + space + "\n"; string(said) != want {
		t.Errorf("the hook says %q, want %q", said, want)
	}
}

// systemd-nspawn has a sysfs of its own, in the same network namespace.
func TestTheSysfsOfANewNetworkNamespaceIsAsReadOnlyAsTheSpecSays(t *testing.T) {
	p := startPod(t)
	for _, mode := range []string{"ro", "rw"} {
		got := p.says("web-"+mode, func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{mode}})
		}, "busybox grep ' - sysfs ' /proc/self/mountinfo")
		if !strings.HasSuffix(got, " - sysfs sysfs "+mode+"\n") {
			t.Errorf("want a superblock that is %s: %s", mode, got)
		}
	}
}

// systemd-nspawn does not accept such a name.
func TestAnyHostnameWillDo(t *testing.T) {
	p := startPod(t)
	if got := p.says("web", func(s *specs.Spec) { s.Hostname = "My_Host" }, "busybox hostname"); got != "My_Host\n" {
		t.Errorf("the app is called %q", got)
	}
}

func TestNamespacesThatAreNotAskedForAreTheHosts(t *testing.T) {
	p := startPod(t)
	q, _, err := p.add("web", func(s *specs.Spec) { s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}} }, "true")
	must(t, err)
	for _, ns := range []string{"pid", "ipc", "uts", "net", "cgroup", "mnt"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", q.PID, ns))
		must(t, err)
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		must(t, err)
		if (theirs == ours) != (ns != "mnt") {
			t.Errorf("%s: the app is in %s, the host in %s", ns, theirs, ours)
		}
	}
	must(t, p.Invoke(p.ctx, p.call(abi.AppStop, "web")))
}

// The app is in the PID namespace of another app and still a child of the supervisor. The
// processes that have brought it there have ended.
func TestAPIDNamespaceIsJoined(t *testing.T) {
	p := startPod(t)
	first, _, err := p.add("first", nil, "busybox sleep 1000")
	must(t, err)
	must(t, p.Invoke(p.ctx, p.call(abi.AppStart, "first")))
	second, _, err := p.add("second", func(s *specs.Spec) {
		i := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.PIDNamespace })
		s.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/pid", first.PID)
	}, "true")
	must(t, err)
	for ns, shared := range map[string]bool{"pid": true, "ipc": false, "uts": false, "net": false, "mnt": false} {
		a, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", first.PID, ns))
		must(t, err)
		b, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", second.PID, ns))
		must(t, err)
		if (a == b) != shared {
			t.Errorf("%s namespaces %s and %s, shared should be %v", ns, a, b, shared)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", second.PID))
	must(t, err)
	if want := fmt.Sprintf("\nPPid:\t%d\n", p.sup.Leader.PID); !strings.Contains(string(status), want) {
		t.Errorf("%q is not in\n%s", want, status)
	}
	// A failure in the container is reported with init's error.
	p.fails(1, `write sysctl`, func(s *specs.Spec) {
		s.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/ns/pid", first.PID)
		s.Linux.Sysctl = map[string]string{"net.ipv4.no_such_key": "1"}
	})
	for _, app := range []string{"second", "first"} {
		must(t, p.Invoke(p.ctx, p.call(abi.AppStop, app)))
	}
}

// No process can join a PID namespace whose first process has ended.
func TestAPIDNamespaceWhoseFirstProcessHasEndedCannotBeJoined(t *testing.T) {
	p := startPod(t)
	first, _, err := p.add("first", nil, "true")
	must(t, err)
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", first.PID))
	must(t, err)
	defer ns.Close()
	must(t, p.Invoke(p.ctx, p.call(abi.AppStart, "first")))
	p.awaitEnd("first")
	p.fails(1, "cannot allocate memory", func(s *specs.Spec) {
		s.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	})
}

// If a pod's supervisor was killed, directories may be left that it would have removed.
func TestGCRemovesWhatSystemdNspawnHasForgotten(t *testing.T) {
	p := newPod(t)
	other := filepath.Join(propagated, "rkt-00000000-0000-4000-8000-000000000000-1")
	for _, dir := range []string{filepath.Join(propagated, "rkt-"+podID+"-1"), filepath.Join(propagated, "rkt-"+podID+"-22"), other} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	t.Cleanup(func() { os.Remove(other) })
	must(t, p.Invoke(p.ctx, p.call(abi.GC, "")))
	if left := directories(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another pod's is gone: %v", err)
	}
}
