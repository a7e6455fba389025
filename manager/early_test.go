package manager

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	runc "github.com/containerd/containerd/api/types/runc/options"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// callOnly calls only package early (how is only) or only the rest of the program (how is "").
func (d *daemon) callOnly(how, bundle, id string, stdin []byte, env []string, args ...string) output {
	d.t.Helper()
	return d.call(bundle, "ns", id, stdin, append([]string{asEarly + "=" + how}, env...), args...)
}

// answered reports whether package early has answered a call.
func (o output) answered(t *testing.T) bool {
	t.Helper()
	var failed *exec.ExitError
	if errors.As(o.err, &failed) && failed.ExitCode() == notAnswered && len(o.stdout)+len(o.stderr) == 0 {
		return false
	}
	if o.err != nil || len(o.stderr) > 0 {
		t.Fatalf("the call ended with %v, stderr %q", o.err, o.stderr)
	}
	return true
}

var inPod = map[string]string{annotation.Group: "pod1", "other": "x"}

func (d *daemon) encodedParams(id string, change ...func(*bootapi.BootstrapParams)) []byte {
	p := d.params("ns", id)
	for _, c := range change {
		c(p)
	}
	return encoded(d.t, p)
}

// requirements.md#B13
// requirements.md#B18
func TestAnEarlyStartAnswersAsALateOne(t *testing.T) {
	const withLayers = "a stage1 that makes roots of layers"
	for name, form := range map[string]func(d *daemon, id string) (stdin []byte, env []string){
		"1.6":           func(*daemon, string) ([]byte, []string) { return nil, nil },
		"1.7 to 2.2":    func(*daemon, string) ([]byte, []string) { return nil, env17("ns") },
		"2.3 and later": func(d *daemon, id string) ([]byte, []string) { return d.encodedParams(id), env17("ns") },
		"2.3 and later, default directory": func(d *daemon, id string) ([]byte, []string) {
			return d.encodedParams(id, func(p *bootapi.BootstrapParams) { p.SocketDir = nil }), env17("ns")
		},
		withLayers: func(d *daemon, id string) ([]byte, []string) {
			return d.encodedParams(id), append(env17("ns"), testLayers+"=1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			start := func(how, id string) output {
				stdin, env := form(d, id)
				return d.callOnly(how, d.bundle("ns", id, inPod), id, stdin, env, "start")
			}
			first := start("", "c1")
			d.succeeded(first)
			address := "unix://" + early.SocketOf(filepath.Join(d.state, "ns", "c1"), &early.Flags{Namespace: "ns", ID: "c1", Address: d.address})
			d.killLater(address)
			told := connect(t, address).connect().Version
			late := start("", "c2")
			d.succeeded(late)
			joined := start(only, "c3")
			if !joined.answered(t) {
				t.Fatal("a start into a pod is not answered early")
			}
			pid := connect(t, address).shimPID()
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			ended(t, pid)
			made := start(only, "c1")
			if !made.answered(t) {
				t.Fatal("the start of a new pod is not answered early")
			}
			d.killLater(address)
			if got := connect(t, address).connect().Version; got != told {
				t.Errorf("early, the server was told %q; late, %q", got, told)
			}
			for _, other := range []output{joined, late, made} {
				if string(other.stdout) != string(first.stdout) {
					t.Errorf("answers: early %q and %q, late %q and %q", made.stdout, joined.stdout, first.stdout, late.stdout)
				}
			}
			if claims := strings.Contains(string(first.stdout), "format"); claims != (name == withLayers) {
				t.Errorf("the answer is %q", first.stdout)
			}
			if got, want := d.files("c3"), d.files("c2"); got != want {
				t.Errorf("early, the bundle has %s; late, it has %s", got, want)
			}
		})
	}
}

// files returns the names of a bundle's files, with those of their contents that name sockets.
func (d *daemon) files(id string) (all string) {
	bundle := filepath.Join(d.state, "ns", id)
	entries, err := os.ReadDir(bundle)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(bundle, e.Name())
		text, err := os.Readlink(path)
		if err != nil {
			content, err := os.ReadFile(path)
			if err != nil {
				d.t.Fatal(err)
			}
			text = string(content)
		}
		all += e.Name() + "=" + text + "\n"
	}
	return all
}

// The server program reads the same stdin after a call that was not answered early: the other tests
// of this package make all their calls in this way.
func TestOnlyOrdinaryStartsAreAnsweredEarly(t *testing.T) {
	d := newDaemon(t)
	d.start24("ns", "c1", inPod)
	ordinary := func(id string) []byte { return d.encodedParams(id) }
	any := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		stdin       []byte
		args        []string
		want        bool
	}{
		"an ordinary one":             {inPod, ordinary("c2"), []string{"start"}, true},
		"debug":                       {inPod, ordinary("c2"), []string{"-debug", "start"}, true},
		"options":                     {inPod, d.encodedParams("c2", func(p *bootapi.BootstrapParams) { _ = p.AddExtension(&runc.Options{}) }), []string{"start"}, false},
		"older options":               {inPod, encoded(t, any(&runc.Options{SystemdCgroup: true})), []string{"start"}, false},
		"another container's":         {inPod, ordinary("c3"), []string{"start"}, false},
		"nonsense":                    {inPod, []byte("{}"), []string{"start"}, false},
		"another group":               {map[string]string{annotation.Group: "pod2"}, ordinary("c2"), []string{"start"}, true},
		"no group":                    {map[string]string{}, ordinary("c2"), []string{"start"}, true},
		"an annotation nobody has":    {map[string]string{annotation.Group: "pod1", annotation.Prefix + ".grup": "x"}, ordinary("c2"), []string{"start"}, false},
		"a group that is no name":     {map[string]string{annotation.Group: "../pod1"}, ordinary("c2"), []string{"start"}, false},
		"an unknown flag":             {inPod, ordinary("c2"), []string{"-new", "start"}, false},
		"an unknown action":           {inPod, ordinary("c2"), []string{"restart"}, false},
		"the server":                  {inPod, ordinary("c2"), nil, false},
		"the version":                 {inPod, ordinary("c2"), []string{"-v", "start"}, false},
		"information":                 {inPod, ordinary("c2"), []string{"-info", "start"}, false},
		"help":                        {inPod, ordinary("c2"), []string{"-help", "start"}, false},
		"an action of delete's child": {inPod, ordinary("c2"), []string{"collect"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			out := d.callOnly(only, d.bundle("ns", "c2", c.annotations), "c2", c.stdin, env17("ns"), c.args...)
			if got := out.answered(t); got != c.want {
				t.Errorf("answered early: %v", got)
			}
			if len(out.stdout) > 0 {
				var result bootapi.BootstrapResult
				if err := proto.Unmarshal(out.stdout, &result); err != nil {
					t.Fatal(err)
				}
				d.killLater(result.Address)
			}
		})
	}
}

// requirements.md#D5
func TestAnEarlyDeleteAnswersAsALateOne(t *testing.T) {
	d := newDaemon(t)
	c := connect(t, d.start24("ns", "c1", inPod))
	c.create("c1")
	before := time.Now()
	for _, how := range []string{"", only} {
		d.start24("ns", "c2", inPod)
		bundle := filepath.Join(d.state, "ns", "c2")
		var out output
		wait.Until(t, "delete is answered, although the server may be slow", func() bool {
			out = d.callOnly(how, bundle, "c2", nil, env17("ns"), "-bundle", bundle, "delete")
			return out.answered(t)
		})
		var r task.DeleteResponse
		if err := proto.Unmarshal(out.stdout, &r); err != nil {
			t.Fatal(err)
		}
		if at := r.ExitedAt.AsTime(); r.Pid != 0 || r.ExitStatus != 137 || at.Before(before) || at.After(time.Now()) {
			t.Errorf("%q: answered %v", how, &r)
		}
	}
	if !c.has("c1") {
		t.Error("c1 has gone")
	}
}

// requirements.md#D3
func TestOnlyADeleteOfNothingIsAnsweredEarly(t *testing.T) {
	d := newDaemon(t)
	answered := func(id string) bool {
		bundle := d.bundle("ns", id, nil)
		return d.callOnly(only, bundle, id, nil, env17("ns"), "-bundle", bundle, "delete").answered(t)
	}
	c := connect(t, d.start24("ns", "c1", inPod))
	d.start24("ns", "c2", inPod)
	if answered("c1") {
		t.Error("a server that was started for a container that was never created")
	}
	c.create("c1")
	c.create("c2")
	if answered("c2") {
		t.Error("a container that the server has")
	}
	if _, err := c.task.Delete(t.Context(), &task.DeleteRequest{ID: "c2"}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the delete of a container that the server has deleted is answered early", func() bool { return answered("c2") })
	d.plan("ns", "c2", collectPlan{})
	if answered("c2") {
		t.Error("a container with a record")
	}
	if !answered("unknown") {
		t.Error("a container without a server is not answered early")
	}
}

// A server removes the pod of its last container after it has answered Delete.
func TestAnEarlyDeleteWaitsForTheServerThatRemovesThePod(t *testing.T) {
	d := newDaemon(t)
	bundle := d.bundle("ns", "c1", nil)
	path := filepath.Join(bundle, planFile)
	wait.Until(t, "delete waits, and does so for long enough", func() bool {
		d.plan("ns", "c1", collectPlan{})
		lock, err := proc.Lock(path, os.O_RDWR, unix.LOCK_EX)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		answered := make(chan bool, 1) // false if delete has given up
		go func() {
			answered <- d.callOnly(only, bundle, "c1", nil, env17("ns"), "-bundle", bundle, "delete").err == nil
		}()
		wait.Until(t, "delete waits or has given up", func() bool { return len(answered) > 0 || awaited(t, path) })
		if err := errors.Join(os.Remove(path), lock.Close()); err != nil {
			t.Fatal(err)
		}
		return <-answered
	})
}

// awaited reports whether a process waits for the lock of a file.
func awaited(t *testing.T, path string) bool {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", st.Sys().(*syscall.Stat_t).Ino)) {
			return true
		}
	}
	return false
}

// requirements.md#B32
func TestAnEarlyDeleteRemovesTheSocketOfAServerThatHasEnded(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("ns", "c1", nil)
	pid := connect(t, address).shimPID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, pid)
	bundle := filepath.Join(d.state, "ns", "c1")
	if !d.callOnly(only, bundle, "c1", nil, env17("ns"), "delete").answered(t) || exists(early.PathOf(address)) {
		t.Error("not answered, or the socket is still there")
	}
}

// A server that hangs may have the container.
func TestADeleteBesideAServerThatDoesNotAnswerIsNotAnsweredEarly(t *testing.T) {
	d := newDaemon(t)
	path, err := early.SocketPath(d.socketDir, d.address, "ns", "c1")
	if err == nil {
		err = os.MkdirAll(d.socketDir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	hung, err := early.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	bundle := d.bundle("ns", "c1", nil)
	write(t, filepath.Join(bundle, "address"), []byte(early.AddressPrefix+path))
	if d.callOnly(only, bundle, "c1", nil, env17("ns"), "delete").answered(t) {
		t.Error("answered early")
	}
	if !exists(path) {
		t.Error("the socket has gone")
	}
}
