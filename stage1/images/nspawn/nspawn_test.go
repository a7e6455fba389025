package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
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

// What an app asks for is done by native's code, but for what systemd-nspawn makes.
func TestTheFeaturesAreThoseOfNativeButForNamespacesAndOneHook(t *testing.T) {
	native, own := readFeatures(t, "../native/features.json"), readFeatures(t, "features.json")
	without := func(list any, words ...string) []any {
		return slices.DeleteFunc(list.([]any), func(w any) bool { return slices.Contains(words, w.(string)) })
	}
	linux := native.OCI["linux"].(map[string]any)
	native.OCI["hooks"] = without(native.OCI["hooks"], "createContainer")
	linux["namespaces"] = without(linux["namespaces"], "user", "time")
	native.Fields = slices.DeleteFunc(native.Fields, func(f string) bool {
		return slices.Contains([]string{"/hooks/createContainer", "/linux/uidMappings", "/linux/gidMappings", "/linux/timeOffsets"}, f)
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
	p.fails(abi.ExitNotImplemented, "joining a PID namespace is not supported", namespace(specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/self/ns/pid"}))
	p.fails(abi.ExitNotImplemented, `"time" is not supported`, namespace(specs.LinuxNamespace{Type: specs.TimeNamespace}))
	p.fails(abi.ExitNotImplemented, "linux.rootfsPropagation", func(s *specs.Spec) { s.Linux.RootfsPropagation = "rshared" })
	for field, spec := range map[string]string{
		"/linux/uidMappings":     `{"linux":{"uidMappings":[{"size":1}]}}`,
		"/hooks/createContainer": `{"hooks":{"createContainer":[{"path":"/x"}]}}`,
		"/linux/timeOffsets":     `{"linux":{"timeOffsets":{"boottime":{"secs":1}}}}`,
	} {
		if err := p.CheckSpec([]byte(spec)); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), " "+field+",") {
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
		t.Errorf("there are cgroups that nobody will remove: %v, before it was %v", after, before)
	}
}

// cgroups lists those that systemd-nspawn makes unless it is told not to.
func cgroups() []string {
	payload, _ := filepath.Glob("/sys/fs/cgroup/*/payload")
	supervisor, _ := filepath.Glob("/sys/fs/cgroup/*/supervisor")
	return append(payload, supervisor...)
}

// systemd-nspawn does not take such a name.
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

// Of a pod whose supervisor was killed there may be directories that it would have
// removed.
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
