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
	"sync/atomic"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// lab tries an attack in one mode against one column.
type lab struct {
	*node
	t      *testing.T
	ctx    context.Context
	result *result
	said   output   // output of attackers and victims in the current try
	seen   []string // loot of the current try that the test itself has found
	apps   atomic.Int32
	execs  atomic.Int32
	// machine is the group of the containers that are in no pod, if they are apps of a machine.
	machine string
}

// output collects the output of containers.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

// take returns whole lines, and removes them.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.b.String()
	end := strings.LastIndexByte(text, '\n') + 1
	o.b.Next(end)
	return text[:end]
}

// bounds returns the bounds of a race: the number of tries and the time.
func bounds() (tries int, limit time.Duration) {
	if long {
		return envNumber("RKT_TEST_HOSTILE_TRIES", 1000), time.Duration(envNumber("RKT_TEST_HOSTILE_SECONDS", 300)) * time.Second
	}
	return 2, 2 * time.Second
}

// proofLimit is the time limit of an attack that must succeed.
const proofLimit = 10 * time.Minute

// race repeats a try until it was repeated often enough or long enough. An attack that must
// succeed is repeated until it does.
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

// once does a single try, and collects its loot.
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

// numbers differ from try to try: those of processes, files and pods.
var numbers = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|-?[0-9]+`)

func withoutNumbers(loot string) string {
	what, how, _ := strings.Cut(loot, ": ")
	return what + ": " + numbers.ReplaceAllString(how, "N")
}

// states returns the rights that processes of the current try have reported.
func (l *lab) states() []loot.State {
	_, states := loot.Parse(l.said.peek())
	return states
}

// got records loot that the test itself has found.
func (l *lab) got(format string, args ...any) { l.seen = append(l.seen, fmt.Sprintf(format, args...)) }

// collect returns the loot since its last call: reports of attackers, and changes to the host's
// files.
func (l *lab) collect() (all []string) {
	l.t.Helper()
	all = l.lootIn(l.said.take())
	changes, err := l.canary.changes()
	if err != nil {
		l.t.Fatal(err)
	}
	return append(all, changes...)
}

// lootIn returns what attackers have reported.
func (l *lab) lootIn(text string) (all []string) {
	said, _ := loot.Parse(text)
	seen := map[loot.Loot]bool{}
	for _, s := range said {
		if seen[s] {
			continue // it is known already
		}
		seen[s] = true
		if s.Secret != "" && s.Secret != l.canary.secret && !l.isMachineSecret(s.Secret) {
			continue // another file of that name
		}
		all = append(all, s.What+": "+s.How)
	}
	return all
}

// isMachineSecret reports whether a text is that of machineSecret.
func (l *lab) isMachineSecret(text string) bool {
	return l.ofMachines() && strings.Contains(text, "virtiofs.ko")
}

// peek returns the output since the last take.
func (o *output) peek() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// spec describes a container: containerd's default spec, with changes.
type spec struct {
	image string
	args  []string
	opts  []oci.SpecOpts
	// terminal gives the container a terminal.
	terminal bool
	pod      *pod
	task     []containerd.NewTaskOpts
}

// victim makes a container, runs it to its end and removes it. If the container cannot be made
// or started, that is a defence, too, and is recorded as such.
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

// refused records the first error by which the runtime defended itself.
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
		case <-exited: // a program that did not wait for its start may have printed loot
			task.IO().Wait()
		case <-time.After(time.Second):
		}
		return err
	}
	return l.awaitEnd(task, exited)
}

// awaitEnd waits for the end of a process and of its output.
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

// attacker starts a container that attacks until the mode ends.
func (l *lab) attacker(s spec) containerd.Task {
	l.t.Helper()
	task, _ := l.started(s)
	return task
}

// started starts a container that says that it is ready, and returns what it said before. The container
// is removed when the mode ends.
func (l *lab) started(s spec) (task containerd.Task, said string) {
	l.t.Helper()
	task, err := l.create(s)
	if err != nil {
		l.t.Fatalf("make the attacker: %v", err)
	}
	l.t.Cleanup(func() { l.remove(task) })
	if err := task.Start(l.ctx); err != nil {
		l.t.Fatalf("start the attacker: %v", err)
	}
	return task, l.awaitReady("the attacker")
}

func (l *lab) create(s spec) (containerd.Task, error) {
	l.t.Helper()
	id := l.id()
	img, err := l.client.GetImage(l.ctx, reference(s.image))
	if err != nil {
		l.t.Fatal(err)
	}
	opts := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithDefaultUnixDevices, oci.WithProcessArgs(s.args...)}, s.opts...)
	opts = append(opts, func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		l.chooseWay(&l.apps, s.Process)
		return nil
	})
	streams := []cio.Opt{cio.WithStreams(nil, &l.said, &l.said), cio.WithFIFODir(filepath.Join(l.daemon.Dir(), "fifo"))}
	if s.terminal {
		opts = append(opts, oci.WithTTY)
		streams = append(streams, cio.WithTerminal)
	}
	if l.ofMachines() && s.pod == nil {
		opts = append(opts, oci.WithAnnotations(map[string]string{"io.containerd.runc.v2.group": l.machine}))
	}
	container, err := l.client.NewContainer(l.ctx, id, append(s.pod.member(), containerd.WithNewSnapshot(id, img),
		containerd.WithNewSpec(opts...), containerd.WithRuntime(l.runtime, nil))...)
	if err != nil {
		l.t.Fatalf("new container: %v", err)
	}
	task, err := container.NewTask(l.ctx, cio.NewCreator(streams...), s.task...)
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

// chooseWay has every other process of a kind made by init, if there is a choice: with this field it is,
// and else by a plan of system calls.
func (l *lab) chooseWay(made *atomic.Int32, p *specs.Process) {
	if l.column.madeByInit() && made.Add(1)%2 == 0 {
		p.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4}
	}
}

// exec executes a program in a container and waits for its end. If the program cannot be
// executed, that is a defence, too.
func (l *lab) exec(task containerd.Task, args []string, edits ...func(*specs.Process)) (err error) {
	l.t.Helper()
	s, err := task.Spec(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	p := *s.Process
	p.Args, p.Terminal = args, false
	l.chooseWay(&l.execs, &p)
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

// volume makes a directory of the host that containers share. Its path is short.
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

// outside lists processes of the node's containers that are outside their cgroups.
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

// bind mounts a volume in a container.
func bind(source, destination string) specs.Mount {
	return mount("bind", source, destination, "rbind", "rw")
}

// userNamespace gives a container a user namespace of its own. Its root is an unprivileged user
// outside.
func userNamespace() oci.SpecOpts {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	return oci.WithUserNamespace(ids, ids)
}

// joining makes a container join namespaces of another one.
func joining(task containerd.Task, types ...specs.LinuxNamespaceType) oci.SpecOpts {
	return joiningPID(int(task.Pid()), types...)
}
