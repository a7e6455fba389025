package supervisor

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// with returns the request of an app whose spec is changed.
func with(t *testing.T, change func(*specs.Spec)) *abi.Request {
	t.Helper()
	var s specs.Spec
	if err := json.Unmarshal([]byte(spec()), &s); err != nil {
		t.Fatal(err)
	}
	change(&s)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &abi.Request{App: "a", Rootfs: dir, Bundle: dir, Spec: text}
}

func TestWhatAMachineCannotGiveIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mount := func(source, kind string, options ...string) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Source: source, Type: kind, Options: options})
		}
	}
	without := func(kind specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			for i, n := range s.Linux.Namespaces {
				if n.Type == kind {
					s.Linux.Namespaces = append(s.Linux.Namespaces[:i], s.Linux.Namespaces[i+1:]...)
					return
				}
			}
		}
	}
	for name, test := range map[string]struct {
		change func(*specs.Spec)
		field  string
	}{
		"the host's network":   {without(specs.NetworkNamespace), `linux.namespaces: without "network"`},
		"the host's processes": {without(specs.PIDNamespace), `linux.namespaces: without "pid"`},
		"the host's mounts":    {without(specs.MountNamespace), `linux.namespaces: without "mount"`},
		"the host's IPC":       {without(specs.IPCNamespace), `linux.namespaces: without "ipc"`},
		"the host's name":      {without(specs.UTSNamespace), `linux.namespaces: without "uts"`},
		"a time namespace": {func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
		}, "linux.namespaces[5].type"},
		"a user namespace to join": {func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/proc/1/ns/user"})
		}, "linux.namespaces[5].path"},
		"a namespace to join":    {func(s *specs.Spec) { s.Linux.Namespaces[1].Path = "/proc/1/ns/ipc" }, "linux.namespaces[1].path"},
		"the host's proc":        {mount("/proc", "bind", "rbind"), "mounts[0].source"},
		"a file of proc":         {mount("/proc/self/status", "bind", "bind"), "mounts[0].source"},
		"the host's sys":         {mount("/sys", "bind", "bind"), "mounts[0].source"},
		"the host's devices":     {mount("/dev", "bind", "rbind"), "mounts[0].source"},
		"their directory":        {mount("/proc/self/root/dev", "bind", "rbind"), "mounts[0].source"},
		"a device":               {mount("/dev/null", "bind", "bind"), "mounts[0].source"},
		"a socket":               {mount(socket, "bind", "bind"), "mounts[0].source"},
		"propagation":            {mount(dir, "bind", "rbind", "rshared"), `mounts[0].options: "rshared"`},
		"propagation from above": {mount(dir, "bind", "rbind", "rslave"), `mounts[0].options: "rslave"`},
		"an overlay":             {mount("overlay", "overlay", "lowerdir=/a:/b"), "mounts[0].type"},
	} {
		_, binds, err := translate(with(t, test.change), "dir", func(int) int { return 0 })
		if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v (%d); the error has to name %s", name, err, serve.CodeOf(err), test.field)
		}
		if err == nil {
			closeBinds(binds)
		}
	}
}

// `run` is told the spec of the first app, without its root.
func TestTheFirstAppIsRefusedBeforeTheVMBoots(t *testing.T) {
	w := newWorld(t)
	check := func(change func(*specs.Spec)) error {
		r := with(t, change)
		return w.s.Share.CheckSpec(&abi.Request{Entrypoint: abi.Run, Bundle: r.Bundle, Spec: r.Spec})
	}
	bind := func(source string) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Source: source, Type: "bind", Options: []string{"rbind"}})
		}
	}
	for name, test := range map[string]struct {
		change func(*specs.Spec)
		why    string
	}{
		"the host's network":          {func(s *specs.Spec) { s.Linux.Namespaces = nil }, `linux.namespaces: without "network"`},
		"a namespace of the host's":   {func(s *specs.Spec) { s.Linux.Namespaces[1].Path = "/proc/1/ns/ipc" }, "linux.namespaces[1].path"},
		"the host's proc":             {bind("/proc"), "mounts[0].source"},
		"the host's proc in a source": {bind("/"), "below it"},
		"a device of the host's": {func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}}
		}, "linux.devices[0]"},
	} {
		if err := check(test.change); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v (%d)", name, err, serve.CodeOf(err))
		}
	}
	for name, change := range map[string]func(*specs.Spec){
		"nothing in particular":    func(*specs.Spec) {},
		"a volume":                 bind(t.TempDir()),
		"a file that is not there": bind(filepath.Join(t.TempDir(), "later")),
	} {
		if err := check(change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectEmptyShare(t)
}

func TestAUserNamespaceIsThatOfThePod(t *testing.T) {
	ids := []specs.LinuxIDMapping{{HostID: 1000, Size: 10}}
	of := func(path string, ids []specs.LinuxIDMapping) *abi.Request {
		return with(t, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: path})
			s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
		})
	}
	want := &channel.Mappings{UIDs: []abi.IDMapping{{HostID: 1000, Size: 10}}, GIDs: []abi.IDMapping{{HostID: 1000, Size: 10}}}
	for path, test := range map[string]struct {
		path  string
		users *channel.Mappings
	}{
		"":                {channel.GuestUser, want},
		"/run/pinned":     {channel.GuestUser, want}, // by containerd, for the pod
		"/proc/7/ns/user": {"/proc/70/ns/user", nil}, // of the proxy of the pause container
	} {
		s, binds, err := translate(of(path, ids), "dir", func(proxy int) int { return 10 * proxy })
		if err != nil {
			t.Fatal(err)
		}
		closeBinds(binds)
		if got := namespaceOf(s, specs.UserNamespace); got != test.path || !reflect.DeepEqual(s.users, test.users) {
			t.Errorf("%q: in the machine it is %q, with the mappings %v", path, got, s.users)
		}
		if err := s.joinNetwork(want); err != nil || namespaceOf(s, specs.NetworkNamespace) != channel.GuestNetwork {
			t.Errorf("%q: the network is %q: %v", path, namespaceOf(s, specs.NetworkNamespace), err)
		}
		if err := s.joinNetwork(nil); serve.CodeOf(err) != abi.ExitNotImplemented {
			t.Errorf("%q, in a pod without a user namespace: %v", path, err)
		}
	}
	if _, _, err := translate(of("", nil), "dir", nil); err == nil || !strings.Contains(err.Error(), "linux.uidMappings") {
		t.Errorf("a user namespace without mappings: %v", err)
	}
}

func namespaceOf(s *translated, kind specs.LinuxNamespaceType) string {
	for _, n := range s.Linux.Namespaces {
		if n.Type == kind {
			return n.Path
		}
	}
	return ""
}

// The host maps the ids of an id-mapped mount: the machine has a plain one.
func TestIDMappedMountsAreTheHosts(t *testing.T) {
	dir, ids := t.TempDir(), []specs.LinuxIDMapping{{HostID: 1000, Size: 10}}
	bind := func(ids []specs.LinuxIDMapping, options ...string) specs.Mount {
		return specs.Mount{Destination: "/m", Source: dir, Type: "bind", Options: append(options, "rbind"), UIDMappings: ids, GIDMappings: ids}
	}
	for _, test := range []struct {
		mount specs.Mount
		app   []specs.LinuxIDMapping // of the app
		want  *idMap
	}{
		{bind(nil), ids, nil},
		{bind(ids), nil, &idMap{mappings(ids, ids), false}},
		{bind(ids, "ridmap"), nil, &idMap{mappings(ids, ids), true}},
		{bind(nil, "idmap"), ids, &idMap{mappings(ids, ids), false}},
	} {
		s, binds, err := translate(with(t, func(s *specs.Spec) {
			s.Mounts, s.Linux.UIDMappings, s.Linux.GIDMappings = []specs.Mount{test.mount}, test.app, test.app
		}), "dir", nil)
		if err != nil {
			t.Fatal(err)
		}
		closeBinds(binds)
		if m := s.Mounts[0]; !reflect.DeepEqual(binds[1].ids, test.want) || len(m.UIDMappings)+len(m.GIDMappings) > 0 || !slices.Equal(m.Options, []string{"rbind"}) {
			t.Errorf("%+v: the host maps %+v, and the machine has %+v", test.mount, binds[1].ids, m)
		}
	}
	half := bind(ids)
	half.GIDMappings = nil
	for _, m := range []specs.Mount{bind(nil, "idmap"), half} {
		if _, _, err := translate(with(t, func(s *specs.Spec) { s.Mounts = []specs.Mount{m} }), "dir", nil); err == nil || !strings.Contains(err.Error(), "mounts[0].uidMappings") {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestSourcesOfMountsBecomePathsInTheMachine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := with(t, func(s *specs.Spec) {
		s.Mounts = []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/d", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}},
			{Destination: "/f", Source: file, Options: []string{"bind"}},
		}
	})
	s, binds, err := translate(r, "dir", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeBinds(binds)
	if len(binds) != 3 || binds[0].File.Name() != r.Rootfs || !binds[1].Dir || !binds[1].Recursive || binds[2].Dir || binds[2].Recursive {
		t.Errorf("the binds are %+v", binds)
	}
	for i, want := range []string{"proc", "/shared/dir/1", "/shared/dir/2"} {
		if got := s.Mounts[i].Source; got != want {
			t.Errorf("the source of mount %d is %s, want %s", i, got, want)
		}
	}
	for _, n := range s.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace {
			t.Error("the app gets a network of its own in the machine")
		}
	}
}

func TestARecursiveBindDoesNotTakeTheHostsKernelAlong(t *testing.T) {
	w := newWorld(t)
	r := with(t, func(s *specs.Spec) {
		s.Mounts = []specs.Mount{{Destination: "/host", Type: "bind", Source: "/", Options: []string{"rbind"}}}
	})
	err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(t))
	if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), "below it") {
		t.Errorf("%v (%d)", err, serve.CodeOf(err))
	}
	expectEmptyShare(t)
}

func TestANamespaceOfAnAppsProxyIsThatOfTheAppInTheMachine(t *testing.T) {
	w := newWorld(t)
	p := w.add("pause")
	var inGuest specs.Spec
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		if err := json.Unmarshal(h.Call.Spec, &inGuest); err != nil {
			t.Error(err)
		}
		succeed(s, h)
	})
	joins := func(pid int) *abi.Request {
		r := with(t, func(s *specs.Spec) {
			s.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/ns/ipc", pid)
			s.Linux.Namespaces[4].Path = fmt.Sprintf("/proc/%d/ns/net", p.proxy.PID())
		})
		return &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}
	}
	if err := w.call(t.Context(), joins(os.Getpid()), null(t)); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), "linux.namespaces[1].path") {
		t.Errorf("another process of the host: %v", err)
	}
	if err := w.call(t.Context(), joins(p.proxy.PID()), null(t)); err != nil {
		t.Fatal(err)
	}
	if got := inGuest.Linux.Namespaces[1].Path; got != "/proc/7/ns/ipc" { // 7 is the pid of every app of these tests
		t.Errorf("the app joins %s", got)
	}
}
