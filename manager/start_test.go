package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// requirements.md#B11
func TestStartAnswersContainerd24InProtobuf(t *testing.T) {
	d := newDaemon(t)
	bundle := d.bundle("default", "c1", map[string]string{"other": "x"})
	p := d.params("default", "c1")
	p.LogLevel = bootapi.LogLevel_LOG_LEVEL_DEBUG
	if err := p.AddExtension(&anypb.Any{TypeUrl: "runtimeoptions.v1.Options", Value: []byte("\n\x04type")}); err != nil {
		t.Fatal(err)
	}
	stdin, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	out := d.call(bundle, "default", "c1", stdin, env17("default"), "start")
	d.succeeded(out)
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal(out.stdout, &result); err != nil {
		t.Fatal(err)
	}
	d.killLater(result.Address)
	if found, err := result.FindExtension(&types.MountCapabilities{}); err != nil || !found {
		t.Errorf("requirements.md#B18: no mount capabilities in the answer: %v, %v", found, err)
	}
	if result.Version != 3 || result.Protocol != "ttrpc" {
		t.Errorf("answered version %d, protocol %q", result.Version, result.Protocol)
	}
	want := strings.Join([]string{"default", "c1", "c1", "native", "debug", d.address + ".ttrpc", "2.4.2",
		"runtimeoptions.v1.Options=\n\x04type", "pids:/daemon"}, "|")
	if got := connect(t, result.Address).connect().Version; got != want {
		t.Errorf("the server was handed %q, want %q", got, want)
	}
}

// requirements.md#B13
func TestStartAnswersOlderDaemonsAsTheyCanRead(t *testing.T) {
	opts, err := proto.Marshal(&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte("\x08\x01")})
	if err != nil {
		t.Fatal(err)
	}
	asJSON := func(t *testing.T, answer string) string {
		var a struct {
			Version           int
			Address, Protocol string
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		// 1.7 refuses anything above 2.
		if a.Version != 2 || a.Protocol != "ttrpc" {
			t.Errorf("answered version %d, protocol %q", a.Version, a.Protocol)
		}
		return a.Address
	}
	plain := func(_ *testing.T, answer string) string { return answer }
	for name, c := range map[string]struct {
		env   []string
		stdin []byte
		read  func(*testing.T, string) string
	}{
		"1.6":                {nil, nil, plain},
		"1.6 with options":   {nil, opts, plain},
		"1.7 to 2.2":         {env17("default"), nil, asJSON},
		"1.7 to 2.2 options": {env17("default"), opts, asJSON},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			bundle := d.bundle("default", "c1", map[string]string{})
			out := d.call(bundle, "default", "c1", c.stdin, c.env, "-debug", "start")
			d.succeeded(out)
			address := c.read(t, string(out.stdout))
			if filepath.Dir(early.PathOf(address)) != early.DefaultSocketDir {
				t.Fatalf("answered address %q", address)
			}
			d.killLater(address)
			got := connect(t, address).connect().Version
			want := "default|c1|c1|native|debug|" + d.address + ".ttrpc|"
			if c.stdin != nil {
				want += "|containerd.runc.v1.Options=\x08\x01"
			}
			if want += "|pids:/daemon"; got != want {
				t.Errorf("the server was handed %q, want %q", got, want)
			}
			// They reconnect from this file after a restart.
			if text, err := os.ReadFile(filepath.Join(bundle, "address")); err != nil || string(text) != address {
				t.Errorf("file address holds %q, %v; want %q", text, err, address)
			}
		})
	}
}

// requirements.md#B14
func TestStartNeedsNoConfigJSON(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("default", "sandbox", nil)
	if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "default|sandbox|sandbox|") {
		t.Errorf("the server was handed %q", got)
	}
}

// requirements.md#B30
func TestSocketDirectoryIsHonouredRememberedAndPrivate(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("default", "c1", nil)
	path := early.PathOf(address)
	if filepath.Dir(path) != d.socketDir {
		t.Fatalf("socket %s is not in %s", path, d.socketDir)
	}
	for p, want := range map[string]os.FileMode{d.socketDir: os.ModeDir | 0o700, path: os.ModeSocket | os.ModeSticky | 0o600} {
		if st, err := os.Stat(p); err != nil || st.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", p, st.Mode(), err, want)
		}
	}
	link, err := os.Readlink(filepath.Join(d.state, "default", "c1", "s"))
	if err != nil || link != d.socketDir {
		t.Errorf("link s in the bundle: %q, %v", link, err)
	}
	entries, err := os.ReadDir(d.socketDir)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the socket there is something: %v, %v", entries, err)
	}
}

// requirements.md#B30
func TestUnusableSocketDirectoryIsRefused(t *testing.T) {
	for dir, want := range map[string]string{
		"relative/s":                   "not absolute",
		"/" + strings.Repeat("x", 42):  "longer than 42",
		"/proc/self/nowhere/to/be/had": "no such file",
	} {
		d := newDaemon(t)
		p := d.params("default", "c1")
		p.SocketDir = &dir
		stdin, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		out := d.call(d.bundle("default", "c1", nil), "default", "c1", stdin, nil, "start")
		if out.err == nil || !strings.Contains(string(out.stderr), want) || len(out.stdout) > 0 {
			t.Errorf("socket directory %s: %v, stdout %q, stderr %q", dir, out.err, out.stdout, out.stderr)
		}
	}
}

// requirements.md#B31
func TestLongIdsAndNamespacesFitIntoASocketName(t *testing.T) {
	d := newDaemon(t)
	address := d.start24(strings.Repeat("n", 76), strings.Repeat("c", 76), nil)
	if path := early.PathOf(address); len(path) > 106 {
		t.Errorf("socket path %s has %d bytes", path, len(path))
	}
}

// requirements.md#B5
func TestNamespacesDoNotShareAServer(t *testing.T) {
	d := newDaemon(t)
	a, b := d.start24("one", "c1", nil), d.start24("two", "c1", nil)
	if a == b || connect(t, a).shimPID() == connect(t, b).shimPID() {
		t.Errorf("both namespaces have the server at %s", a)
	}
}

// requirements.md#G1
func TestMembersOfAGroupGetTheAddressOfItsServer(t *testing.T) {
	for _, key := range []string{annotation.Group, "io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"} {
		t.Run(key, func(t *testing.T) {
			d := newDaemon(t)
			group := map[string]string{key: "pod1"}
			first, second := d.start24("default", "c1", group), d.start24("default", "c2", group)
			if first != second {
				t.Errorf("two members have two servers: %s and %s", first, second)
			}
			if other := d.start24("default", "c3", map[string]string{key: "pod2"}); other == first {
				t.Error("a member of another group has the same server")
			}
		})
	}
}

// requirements.md#B32
func TestConcurrentStartsOfAGroupMakeOneServer(t *testing.T) {
	d := newDaemon(t)
	const n = 8
	group := map[string]string{annotation.Group: "pod1"}
	outputs := make([]output, n)
	var wg sync.WaitGroup
	for i := range n {
		id := fmt.Sprintf("c%d", i)
		bundle := d.bundle("default", id, group)
		stdin, err := proto.Marshal(d.params("default", id))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { outputs[i] = d.call(bundle, "default", id, stdin, nil, "start") })
	}
	wg.Wait()
	addresses := map[string]bool{}
	for _, out := range outputs {
		var result bootapi.BootstrapResult
		d.succeeded(out)
		if err := proto.Unmarshal(out.stdout, &result); err != nil {
			t.Fatal(err)
		}
		addresses[result.Address] = true
		d.killLater(result.Address)
	}
	if len(addresses) != 1 {
		t.Errorf("the members have %d addresses", len(addresses))
	}
	if servers := serversOf(t, d.address); len(servers) != 1 {
		t.Errorf("the group has the servers %v", servers)
	}
}

// serversOf finds servers by their arguments, also those without a socket.
func serversOf(t *testing.T, address string) (pids []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		cmdline, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(cmdline), "-address\x00"+address+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// requirements.md#B32
func TestStaleSocketIsReplaced(t *testing.T) {
	d := newDaemon(t)
	path, err := early.SocketPath(d.socketDir, d.address, "default", "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.socketDir, 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := early.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	if address := d.start24("default", "c1", nil); early.PathOf(address) != path {
		t.Errorf("answered %s, want %s", address, path)
	}
	if exists(path + early.LockSuffix) {
		t.Error("the lock is left")
	}
}

// A `start` that is killed leaves its lock, and its socket if it has not made a server yet.
// containerd calls no `delete` for it. The files of other shims must stay.
// requirements.md#B33
func TestWhatAKilledStartHasLeftGoesWithTheNextServer(t *testing.T) {
	d := newDaemon(t)
	if err := os.MkdirAll(d.socketDir, 0o700); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(d.socketDir, name) }
	left := func(name string) { // as a `start` that was killed with its lock held
		t.Helper()
		dead, err := early.Listen(at(name))
		if err != nil {
			t.Fatal(err)
		}
		dead.Close()
		write(t, at(name)+early.LockSuffix, nil)
	}
	left("killed")
	left("others") // runc's: no lock, and no mark in its mode
	if err := errors.Join(os.Remove(at("others")+early.LockSuffix), os.Chmod(at("others"), 0o600)); err != nil {
		t.Fatal(err)
	}
	write(t, at("alone")+early.LockSuffix, nil)
	works, err := early.ClaimSocket(at("works")) // a `start` at work
	if err != nil {
		t.Fatal(err)
	}
	defer works.Undo()
	serving, err := early.Listen(at("serving")) // a server whose `start` was killed later
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Close()
	write(t, at("serving")+early.LockSuffix, nil)

	d.start24("default", "c1", nil)
	wait.Until(t, "what killed calls of start have left is gone", func() bool {
		return !exists(at("killed")) && !exists(at("killed")+early.LockSuffix) && !exists(at("alone")+early.LockSuffix) && !exists(at("serving")+early.LockSuffix)
	})
	for _, name := range []string{"others", "works", "works" + early.LockSuffix, "serving"} {
		if !exists(at(name)) {
			t.Errorf("%s is gone", name)
		}
	}
}

// A sweep of another process must not remove the socket of a `start` that begins.
// requirements.md#B32
func TestASweepDoesNotTakeTheSocketOfAStart(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := early.SweepSockets(dir); err != nil {
				t.Errorf("sweep: %v", err)
				return
			}
		}
	})
	for i := range 2000 {
		path := filepath.Join(dir, strconv.Itoa(i%3))
		c, err := early.ClaimSocket(path)
		if err != nil {
			t.Error(err)
			break
		}
		if err := early.Probe(path); err != nil {
			t.Errorf("the socket of a start: %v", err)
		}
		c.Release() // the socket stays without a listener: the next start replaces it
	}
	close(stop)
	sweeper.Wait()
}

// requirements.md#B33
func TestKilledServerIsReplacedByTheNextStart(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("default", "c1", nil)
	pid := connect(t, address).shimPID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, pid)
	if again := d.start24("default", "c1", nil); again != address || connect(t, again).shimPID() == pid {
		t.Errorf("start after the server was killed answered %s, before %s", again, address)
	}
}

func TestStartNamesTheNearestKnownAnnotation(t *testing.T) {
	d := newDaemon(t)
	bundle := d.bundle("default", "c1", map[string]string{annotation.Prefix + "/stag1": "kvm"})
	out := d.call(bundle, "default", "c1", nil, nil, "start")
	if out.err == nil || !strings.Contains(string(out.stderr), `"`+annotation.Stage1+`"`) {
		t.Errorf("start ended with %v, stderr %q", out.err, out.stderr)
	}
}

// requirements.md#B10
func TestParametersForAnotherContainerAreRefused(t *testing.T) {
	d := newDaemon(t)
	stdin, err := proto.Marshal(d.params("default", "other"))
	if err != nil {
		t.Fatal(err)
	}
	out := d.call(d.bundle("default", "c1", nil), "default", "c1", stdin, nil, "start")
	if out.err == nil || !strings.Contains(string(out.stderr), `"other"`) {
		t.Errorf("start ended with %v, stderr %q", out.err, out.stderr)
	}
}

func TestNameOfTheProgramPinsTheStage1(t *testing.T) {
	d := newDaemon(t)
	d.argv0 = "/opt/bin/containerd-shim-rkt-oci-v1"
	address := d.start24("default", "c1", nil)
	if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "default|c1|c1|oci|") {
		t.Errorf("the server was handed %q", got)
	}
}

// requirements.md#B17
func TestServerStartsInTheShimCgroup(t *testing.T) {
	d := newDaemon(t)
	roots := pidsAndFreezer(t)
	path := fmt.Sprintf("/rkt-manager-test-%d", os.Getpid())
	for _, root := range roots {
		dir := root + path
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("needs a cgroup hierarchy that can be written: %v", err)
		}
		t.Cleanup(func() { wait.Until(t, "the cgroup goes", func() bool { return os.Remove(dir) == nil }) })
	}
	p := d.params("default", "c1")
	if err := p.AddExtension(&options.Options{ShimCgroup: path}); err != nil {
		t.Fatal(err)
	}
	server := connect(t, d.startWith(d.bundle("default", "c1", nil), p))
	if told := server.connect().Version; !strings.HasSuffix(told, "|pids:/daemon") {
		t.Errorf("the server is told other cgroups than those of start: %q", told)
	}
	pid := server.shimPID()
	for _, root := range roots {
		procs, err := os.ReadFile(filepath.Join(root+path, "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(procs)) != fmt.Sprint(pid) {
			t.Errorf("%s%s has the processes %q, %v; want %d", root, path, procs, err, pid)
		}
	}
}

// pidsAndFreezer returns roots of hierarchies whose cgroups need no set-up.
func pidsAndFreezer(t *testing.T) (roots []string) {
	for _, controller := range []string{"pids", "freezer"} {
		root := filepath.Join(cgroupRoot, controller)
		if exists(filepath.Join(root, "tasks")) {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		if !exists(filepath.Join(cgroupRoot, "cgroup.procs")) {
			t.Skip("needs a cgroup hierarchy below " + cgroupRoot)
		}
		roots = []string{cgroupRoot}
	}
	return roots
}

// requirements.md#B17
func TestMissingShimCgroupIsAnError(t *testing.T) {
	d := newDaemon(t)
	p := d.params("default", "c1")
	if err := p.AddExtension(&options.Options{ShimCgroup: "/no/such/cgroup"}); err != nil {
		t.Fatal(err)
	}
	stdin, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	out := d.call(d.bundle("default", "c1", nil), "default", "c1", stdin, nil, "start")
	if out.err == nil || !strings.Contains(string(out.stderr), "/no/such/cgroup") {
		t.Errorf("start ended with %v, stderr %q", out.err, out.stderr)
	}
	if entries, err := os.ReadDir(d.socketDir); err != nil || len(entries) > 0 {
		t.Errorf("a failed start left %v, %v", entries, err)
	}
}

// requirements.md#B17
func TestCoreSchedulingGivesTheServerACookie(t *testing.T) {
	const scopeThread = 0
	if err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, scopeThread, 0); err == unix.EINVAL {
		t.Skip("needs a kernel with core scheduling")
	}
	d := newDaemon(t)
	d.env = []string{"SCHED_CORE=1"}
	out := d.call(d.bundle("default", "c1", nil), "default", "c1", nil, nil, "start")
	if strings.Contains(string(out.stderr), "no such device") {
		t.Skip("needs processors with threads")
	}
	d.succeeded(out)
	d.killLater(string(out.stdout))
}

// containerd calls no `delete` for a server that dies before containerd has connected to it. Sockets of other
// shims have the same kind of name.
func TestASweepRemovesTheSocketsOfDeadServersOfThisProgramOnly(t *testing.T) {
	dir := t.TempDir()
	c, err := early.ClaimSocket(filepath.Join(dir, "dead"))
	if err != nil {
		t.Fatal(err)
	}
	c.Release()
	serves, err := early.ClaimSocket(filepath.Join(dir, "serves"))
	if err != nil {
		t.Fatal(err)
	}
	serving, err := net.FileListener(serves.Listener)
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Close()
	serves.Release()
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "other"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	other.SetUnlinkOnClose(false)
	other.Close()
	if err := early.SweepSockets(dir); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "other"), filepath.Join(dir, "serves")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %q, %v; want %q", left, err, want)
	}
}
