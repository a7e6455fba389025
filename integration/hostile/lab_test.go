package hostile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// lab is where an attack is tried in one mode against one column.
type lab struct {
	*node
	t      *testing.T
	ctx    context.Context
	result *result
	said   output   // what attackers and victims of the current try have said
	seen   []string // loot of the current try that the test itself has seen
}

// output collects what containers write.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

// take returns whole lines, and forgets them.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.b.String()
	end := strings.LastIndexByte(text, '\n') + 1
	o.b.Next(end)
	return text[:end]
}

// bounds of a race: so many tries, or so long.
func bounds() (tries int, limit time.Duration) {
	if long {
		return envNumber("RKT_TEST_HOSTILE_TRIES", 1000), time.Duration(envNumber("RKT_TEST_HOSTILE_SECONDS", 300)) * time.Second
	}
	return 2, 2 * time.Second
}

// proofLimit is how long what is to win is tried.
const proofLimit = 10 * time.Minute

// race tries something until it has been tried often enough, or long enough. What is
// to win is tried until it wins.
func (l *lab) race(try func()) {
	tries, limit := bounds()
	if l.role == proof {
		tries, limit = math.MaxInt, proofLimit
	}
	for begin := time.Now(); l.result.Tries < tries && time.Since(begin) < limit; {
		l.once(try)
		if l.t.Failed() || l.role == proof && l.result.Wins > 0 {
			return
		}
	}
}

// once tries something a single time, and looks at what was got by it.
func (l *lab) once(try func()) {
	l.t.Helper()
	try()
	l.result.Tries++
	all := append(l.seen, l.collect()...)
	l.seen = nil
	if len(all) == 0 {
		return
	}
	l.result.Wins++
	for _, one := range all {
		if one = withoutNumbers(one); !slices.Contains(l.result.Loot, one) {
			l.result.Loot = append(l.result.Loot, one)
			l.t.Logf("try %d: %s", l.result.Tries, one)
		}
	}
}

// numbers differ from try to try: of processes, files and pods.
var numbers = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|-?[0-9]+`)

func withoutNumbers(loot string) string {
	what, how, _ := strings.Cut(loot, ": ")
	return what + ": " + numbers.ReplaceAllString(how, "N")
}

// states are what processes of the current try have said of themselves.
func (l *lab) states() []loot.State {
	_, states := loot.Parse(l.said.peek())
	return states
}

// got notes loot that the test itself has seen.
func (l *lab) got(format string, args ...any) { l.seen = append(l.seen, fmt.Sprintf(format, args...)) }

// collect is what was got since it was asked last: what attackers say, and what has
// become of the host's files.
func (l *lab) collect() (all []string) {
	l.t.Helper()
	said, _ := loot.Parse(l.said.take())
	seen := map[loot.Loot]bool{}
	for _, s := range said {
		if seen[s] {
			continue // the same again
		}
		seen[s] = true
		if s.Secret != "" && s.Secret != l.canary.secret {
			continue // some other file of that name
		}
		all = append(all, s.What+": "+s.How)
	}
	changes, err := l.canary.changes()
	if err != nil {
		l.t.Fatal(err)
	}
	return append(all, changes...)
}

// peek returns all that was written since take.
func (o *output) peek() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// spec is of a container: those of containerd's default, and then some.
type spec struct {
	image string
	args  []string
	opts  []oci.SpecOpts
	// terminal gives it one.
	terminal bool
	pod      *pod
}

// victim makes a container, runs it to its end and removes it. That it could not be
// made or started is a defence, too, and noted as such.
func (l *lab) victim(s spec) (err error) {
	l.t.Helper()
	task, err := l.create(s)
	if err == nil {
		defer l.remove(task)
		err = l.runTask(task)
	}
	if err != nil {
		l.refused(err)
	}
	return err
}

// refused notes the first error with which the runtime defended itself.
func (l *lab) refused(err error) {
	l.result.Refused++
	if l.result.Refusal == "" {
		l.result.Refusal = err.Error()
		l.t.Logf("refused: %v", err)
	}
}

func (l *lab) runTask(task containerd.Task) error {
	exited, err := task.Wait(l.ctx)
	if err != nil {
		return err
	}
	if err := task.Start(l.ctx); err != nil {
		select {
		case <-exited: // a program that did not wait to be started has something to say
			task.IO().Wait()
		case <-time.After(time.Second):
		}
		return err
	}
	return l.awaitEnd(task, exited)
}

// awaitEnd waits for the end of a process, and for what it has written.
func (l *lab) awaitEnd(p containerd.Process, exited <-chan containerd.ExitStatus) error {
	l.t.Helper()
	select {
	case s := <-exited:
		if s.Error() != nil {
			return s.Error()
		}
		if s.ExitCode() == 125 {
			l.t.Logf("%s could not look: %s", p.ID(), l.said.peek())
		}
	case <-time.After(patience):
		return fmt.Errorf("%s does not end within %s", p.ID(), patience)
	}
	read := make(chan struct{})
	go func() {
		p.IO().Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(patience):
		l.t.Errorf("the streams of %s do not end", p.ID())
	}
	return nil
}

// attacker starts a container that attacks for as long as the mode is tried.
func (l *lab) attacker(s spec) containerd.Task {
	l.t.Helper()
	task, err := l.create(s)
	if err != nil {
		l.t.Fatalf("make the attacker: %v", err)
	}
	l.t.Cleanup(func() { l.remove(task) })
	if err := task.Start(l.ctx); err != nil {
		l.t.Fatalf("start the attacker: %v", err)
	}
	for deadline := time.Now().Add(patience); !strings.Contains(l.said.peek(), "ready\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("the attacker is not ready within %s: %s", patience, l.said.peek())
		}
	}
	_ = l.said.take()
	return task
}

func (l *lab) create(s spec) (containerd.Task, error) {
	l.t.Helper()
	id := l.id()
	img, err := l.client.GetImage(l.ctx, reference(s.image))
	if err != nil {
		l.t.Fatal(err)
	}
	opts := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithDefaultUnixDevices, oci.WithProcessArgs(s.args...)}, s.opts...)
	streams := []cio.Opt{cio.WithStreams(nil, &l.said, &l.said), cio.WithFIFODir(filepath.Join(l.daemon.Dir(), "fifo"))}
	if s.terminal {
		opts = append(opts, oci.WithTTY)
		streams = append(streams, cio.WithTerminal)
	}
	container, err := l.client.NewContainer(l.ctx, id, append(s.pod.member(), containerd.WithNewSnapshot(id, img),
		containerd.WithNewSpec(opts...), containerd.WithRuntime(l.runtime, nil))...)
	if err != nil {
		l.t.Fatalf("new container: %v", err)
	}
	task, err := container.NewTask(l.ctx, cio.NewCreator(streams...))
	if err != nil {
		l.forget(container)
		return nil, err
	}
	return task, nil
}

func (l *lab) remove(task containerd.Task) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), l.daemon.Namespace()), patience)
	defer cancel()
	if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil && !strings.Contains(err.Error(), "not found") {
		l.t.Errorf("delete task %s: %v", task.ID(), err)
	}
	container, err := l.client.LoadContainer(ctx, task.ID())
	if err != nil {
		l.t.Error(err)
		return
	}
	l.forget(container)
}

func (l *lab) forget(container containerd.Container) {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), l.daemon.Namespace()), patience)
	defer cancel()
	if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		l.t.Errorf("delete container %s: %v", container.ID(), err)
	}
}

// exec executes something in a container and waits for its end. That it could not be
// executed is a defence, too.
func (l *lab) exec(task containerd.Task, args []string, edits ...func(*specs.Process)) (err error) {
	l.t.Helper()
	s, err := task.Spec(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	p := *s.Process
	p.Args, p.Terminal = args, false
	for _, edit := range edits {
		edit(&p)
	}
	streams := []cio.Opt{cio.WithStreams(nil, &l.said, &l.said), cio.WithFIFODir(filepath.Join(l.daemon.Dir(), "fifo"))}
	if p.Terminal {
		streams = append(streams, cio.WithTerminal)
	}
	process, err := task.Exec(l.ctx, l.id(), &p, cio.NewCreator(streams...))
	if err != nil {
		l.refused(err)
		return err
	}
	defer func() {
		if _, derr := process.Delete(l.ctx, containerd.WithProcessKill); derr != nil && !strings.Contains(derr.Error(), "not found") {
			l.t.Logf("delete exec: %v", derr)
		}
	}()
	exited, err := process.Wait(l.ctx)
	if err == nil {
		err = process.Start(l.ctx)
	}
	if err != nil {
		l.refused(err)
		return err
	}
	return l.awaitEnd(process, exited)
}

// volume makes a directory of the host's that containers share. The path is short.
func (l *lab) volume(name string) string {
	l.t.Helper()
	dir := filepath.Join(nodesDir, l.short, "volumes", name)
	if err := os.RemoveAll(dir); err != nil {
		l.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// outside lists processes of the node's containers that are in no cgroup of theirs.
func (l *lab) outside() (all []string) {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range pids {
		environ, err := os.ReadFile(proc + "/environ")
		if err != nil || !strings.Contains("\x00"+string(environ), "\x00"+nodeVariable+"="+l.short+"\x00") {
			continue
		}
		cgroup, err := os.ReadFile(proc + "/cgroup")
		if err == nil && !strings.Contains(string(cgroup), "/"+l.daemon.Namespace()+"/") {
			cmd, _ := os.ReadFile(proc + "/cmdline")
			all = append(all, fmt.Sprintf("a process was left outside: %s, %q", proc, cmd))
		}
	}
	return all
}

func mount(kind, source, destination string, options ...string) specs.Mount {
	return specs.Mount{Type: kind, Source: source, Destination: destination, Options: options}
}

// bind is a volume in a container.
func bind(source, destination string) specs.Mount {
	return mount("bind", source, destination, "rbind", "rw")
}

// userNamespace gives a container one of its own, in which its root is nobody outside.
func userNamespace() oci.SpecOpts {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	return oci.WithUserNamespace(ids, ids)
}

// joining makes a container share namespaces of another.
func joining(task containerd.Task, types ...specs.LinuxNamespaceType) oci.SpecOpts {
	return joiningPID(int(task.Pid()), types...)
}
