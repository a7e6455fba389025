package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The states of rkt's proposal, one after the other, and every field of its AppStatus.
func TestAnAppGoesThroughTheStatesOfTheProposal(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		before := time.Now()
		p.add("web", "trap 'echo bye; exit 7' TERM; echo hello; while :; do sleep 0.05; done")
		st := p.expect("web", local.Prepared)
		if st.Name != "web" || st.Pod != p.UUID() || st.CreatedAt.Before(before) || !st.StartedAt.IsZero() || !st.FinishedAt.IsZero() || st.ExitCode != nil {
			t.Errorf("prepared: %+v", st)
		}
		p.start("web")
		started := p.expect("web", local.Running)
		if started.StartedAt.Before(st.CreatedAt) || started.PID == 0 || started.ExitCode != nil {
			t.Errorf("running: %+v", started)
		}
		p.start("web") // idempotent
		if again := p.status("web"); again.PID != started.PID || !again.StartedAt.Equal(started.StartedAt) {
			t.Errorf("after a second start: %+v, want %+v", again, started)
		}
		p.awaitLog("web", "hello\n")
		if err := p.Stop(t.Context(), "web", soon()); err != nil {
			t.Fatal(err)
		}
		ended := p.expect("web", local.Exited)
		if ended.ExitCode == nil || *ended.ExitCode != 7 || ended.FinishedAt.Before(ended.StartedAt) || ended.PID != 0 {
			t.Errorf("exited: %+v", ended)
		}
		if err := p.Stop(t.Context(), "web", 0); err != nil {
			t.Errorf("stop of an app that has exited: %v", err)
		}
		if err := p.Start(t.Context(), "web"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "runs once") {
			t.Errorf("start of an app that has exited: %v", err)
		}
		if err := p.Pod.Delete(t.Context(), "web", 0); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Pod.Status(t.Context(), "web"); !errdefs.IsNotFound(err) {
			t.Errorf("status of a removed app: %v", err)
		}
		p.awaitLog("web", "hello\nbye\n") // logs stay
	})
}

// awaitLog waits until the log of an app is this text.
func (p *pod) awaitLog(name, want string) {
	p.Helper()
	var text []byte
	for end := time.Now().Add(soon()); ; time.Sleep(10 * time.Millisecond) {
		paths, err := p.Logs(name)
		if err == nil {
			text, err = os.ReadFile(paths[len(paths)-1])
		}
		if err == nil && string(text) == want {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("log of %s: %q, want %q: %v", name, text, want, err)
		}
	}
}

func TestAnAppThatIgnoresSIGTERMIsKilledAfterThePeriod(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		p.add("deaf", "trap '' TERM; while :; do sleep 0.05; done")
		p.start("deaf")
		began := time.Now()
		if err := p.Stop(t.Context(), "deaf", 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 300*time.Millisecond || took > soon() {
			t.Errorf("stopped after %s", took)
		}
		if st := p.expect("deaf", local.Exited); *st.ExitCode != 137 {
			t.Errorf("%+v", st)
		}
	})
}

// A stop with a long period does not keep a second one from being more urgent, and the state
// says stopping meanwhile.
func TestASecondStopCanBeMoreUrgent(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("deaf", "trap '' TERM; while :; do sleep 0.05; done")
	p.start("deaf")
	first := make(chan error, 1)
	go func() { first <- p.Stop(t.Context(), "deaf", time.Hour) }()
	p.await("deaf", local.Stopping)
	if err := p.Start(t.Context(), "deaf"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start of an app that is being stopped: %v", err)
	}
	if err := p.Stop(t.Context(), "deaf", 0); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Errorf("the first stop: %v", err)
	}
	p.expect("deaf", local.Exited)
}

// The proposal's first use case: a client orchestrates apps one after the other.
func TestOneAppRunsAfterAnotherHasSucceeded(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		dir := t.TempDir()
		one, two := config("one", "echo data > /shared/file"), config("two", "cat /shared/file; hostname")
		for _, c := range []*local.AppConfig{&one, &two} {
			c.Volumes = []local.Volume{{Source: dir, Target: "/shared", ReadOnly: c == &two}}
			if err := p.Pod.Add(t.Context(), *c); err != nil {
				t.Fatal(err)
			}
		}
		p.start("one")
		if st := p.await("one", local.Exited); *st.ExitCode != 0 {
			t.Fatalf("%+v", st)
		}
		p.expect("two", local.Prepared)
		p.start("two")
		if st := p.await("two", local.Exited); *st.ExitCode != 0 {
			t.Errorf("%+v", st)
		}
		p.awaitLog("two", "data\nrkt-"+p.UUID()+"\n")
	})
}

// The proposal's second use case: an app is replaced, and the pod and its other apps do not
// notice.
func TestAnAppIsReplacedInPlace(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		p.add("other", "exec sleep 1000")
		p.start("other")
		p.add("web", "echo version 1; exec sleep 1000")
		p.start("web")
		p.awaitLog("web", "version 1\n")
		supervisor, server, other := p.supervisor(), p.server(), p.status("other").PID
		if err := p.Pod.Delete(t.Context(), "web", 0); err != nil { // it is running: stopped first
			t.Fatal(err)
		}
		p.add("web", "echo version 2; exec sleep 1000")
		p.start("web")
		p.awaitLog("web", "version 1\nversion 2\n")
		if p.supervisor() != supervisor || p.server() != server || p.status("other").PID != other {
			t.Error("the pod, or an app that was not touched, has other processes")
		}
		p.expect("web", local.Running)
		p.expect("other", local.Running)
	})
}

// supervisor returns what shim.json says of the pod's supervisor.
func (p *pod) supervisor() string {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.DataDir, "pods/run", p.UUID(), "shim.json"))
	if err != nil {
		p.Fatal(err)
	}
	_, after, _ := bytes.Cut(text, []byte(`"supervisor":`))
	return string(after)
}

func TestACommandIsExecutedInARunningApp(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		p.add("web", "exec sleep 1000")
		c := local.ExecConfig{App: "web", Args: []string{"true"}}
		if _, err := p.Exec(t.Context(), c); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("exec in a prepared app: %v", err)
		}
		p.start("web")
		var out, errs bytes.Buffer
		c = local.ExecConfig{App: "web", Args: []string{"sh", "-c", "cat; echo $X; echo err >&2; exit 5"}, Env: []string{"X=y"},
			Stdin: strings.NewReader("input\n"), Stdout: &out, Stderr: &errs}
		if code, err := p.Exec(t.Context(), c); err != nil || code != 5 || out.String() != "input\ny\n" || errs.String() != "err\n" {
			t.Errorf("%d, %v, %q, %q", code, err, out.String(), errs.String())
		}
		out.Reset()
		sizes := make(chan local.Size, 1)
		sizes <- local.Size{Width: 70, Height: 20}
		c = local.ExecConfig{App: "web", Args: []string{"sh", "-c", "tty; until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done; stty size"},
			Terminal: true, Stdout: &out, Resize: sizes}
		if code, err := p.Exec(t.Context(), c); err != nil || code != 0 || !strings.HasSuffix(out.String(), "20 70\r\n") || !strings.Contains(out.String(), "/dev/") {
			t.Errorf("terminal: %d, %v, %q", code, err, out.String())
		}
		if _, err := p.Exec(t.Context(), local.ExecConfig{App: "web", Args: []string{"no-such-program"}, Stdout: &out, Stderr: &errs}); err == nil || !strings.Contains(err.Error(), "no-such-program") {
			t.Errorf("an exec of no program: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := p.Exec(ctx, local.ExecConfig{App: "web", Args: []string{"sleep", "1000"}, Stdout: &out}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an exec whose client gives up: %v", err)
		}
		left, err := os.ReadDir(filepath.Join(p.DataDir, "local", p.UUID(), "execs"))
		if err != nil || len(left) != 0 {
			t.Errorf("left of execs: %v, %v", left, err)
		}
	})
}

// Two commands at once: one adds, the other is told that the app is there; of two starts and two
// removals both succeed.
func TestCommandsAtTheSameTimeDoNotDisturbEachOther(t *testing.T) {
	p := newBox(t, "native").sandbox()
	const n = 4
	all := func(f func() error) (errs []error) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range n {
			wg.Go(func() {
				err := f()
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					errs = append(errs, err)
				}
			})
		}
		wg.Wait()
		return errs
	}
	for range 5 {
		errs := all(func() error { return p.Pod.Add(t.Context(), config("web", "exec sleep 1000")) })
		if len(errs) != n-1 {
			t.Fatalf("%d of %d adds have failed: %v", len(errs), n, errs)
		}
		for _, err := range errs {
			if !errdefs.IsAlreadyExists(err) {
				t.Error(err)
			}
		}
		if errs := all(func() error { return p.Start(t.Context(), "web") }); len(errs) > 0 {
			t.Error(errs)
		}
		for _, err := range all(func() error { return p.Pod.Delete(t.Context(), "web", 0) }) {
			if !errdefs.IsNotFound(err) {
				t.Error(err)
			}
		}
	}
}

// A pod whose server was killed: its apps run on, their states are true, and everything can be
// stopped and removed.
func TestAPodWhoseServerWasKilled(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		p.add("ready", "exec sleep 1000")
		p.add("done", "exit 3")
		p.start("done")
		done := p.await("done", local.Exited)
		p.add("web", "trap 'exit 9' TERM; while :; do sleep 0.05; done")
		p.start("web")
		web := p.status("web")
		p.killServer()
		if st := p.expect("done", local.Exited); *st.ExitCode != 3 || !st.StartedAt.Equal(done.StartedAt) || st.FinishedAt.IsZero() {
			t.Errorf("done: %+v, before %+v", st, done)
		}
		if st := p.expect("web", local.Running); st.PID != web.PID || !st.StartedAt.Equal(web.StartedAt) {
			t.Errorf("web: %+v, before %+v", st, web)
		}
		p.expect("ready", local.Prepared)
		for what, err := range map[string]error{
			"add":   p.Pod.Add(t.Context(), config("new", "true")),
			"start": p.Start(t.Context(), "ready"),
		} {
			if err == nil || !strings.Contains(err.Error(), "server is not running") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := p.Stop(t.Context(), "web", soon()); err != nil {
			t.Fatal(err)
		}
		want := int64(9)
		if b.stage1 == "oci" {
			want = 137 // the server records the exits of its apps, and the code of this one is lost
		}
		if st := p.await("web", local.Exited); *st.ExitCode != want {
			t.Errorf("%+v, want %d", st, want)
		}
		if err := p.Pod.Delete(t.Context(), "web", 0); err != nil {
			t.Error(err)
		}
		if all, err := p.List(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A server that starts in the same data directory collects what other servers have left. A
// local pod is left to its operator, whether its server runs or not.
func TestTheCollectorsOfOtherServersLeaveALocalPodAlone(t *testing.T) {
	b := newBox(t, "native")
	alive, dead := b.sandbox(), b.sandbox()
	for _, p := range []*pod{alive, dead} {
		p.add("web", "exec sleep 1000")
		p.start("web")
	}
	dead.killServer()
	other := b.sandbox() // its server collects when it starts, and when it ends
	if err := other.Remove(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next := b.sandbox()
		pid := next.server()
		if err := next.Remove(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for commandLine(pid) != "" {
			time.Sleep(10 * time.Millisecond)
		}
	}
	alive.expect("web", local.Running)
	dead.expect("web", local.Running)
	for _, p := range []*pod{alive, dead} {
		if err := p.Remove(t.Context(), false); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("removal of a pod with a running app: %v", err)
		}
	}
}

// What an app writes stays in its own root, and goes with it.
func TestAnImageIsNotChanged(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("writer", "echo x > /etc/new; rm /etc/passwd; mkdir /d; cat /etc/new")
	p.start("writer")
	p.await("writer", local.Exited)
	p.awaitLog("writer", "x\n")
	for path, want := range map[string]bool{"etc/new": false, "etc/passwd": true, "d": false} {
		if _, err := os.Lstat(filepath.Join(suite.rootfs, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The server is in a cgroup of its pod, so that the end of the caller's session or job does not
// end the pod.
func TestTheServerIsNotInTheCgroupOfItsCaller(t *testing.T) {
	p := newBox(t, "native").sandbox()
	text, err := os.ReadFile(filepath.Join("/proc", itoa(p.server()), "cgroup"))
	if err != nil || !strings.Contains(string(text), suite.cgroup+"/"+p.UUID()+"/_server") {
		t.Errorf("%s, %v", text, err)
	}
	if err := syscall.Kill(p.server(), 0); err != nil {
		t.Error(err)
	}
}

// script is a plugin of CNI that logs its calls and adds an address in the namespace.
const script = `#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME" >>"$(dirname "$0")/log"
case $CNI_COMMAND in
ADD)
	nsenter --net="$CNI_NETNS" ip address add 192.0.2.7/24 dev lo
	echo '{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.7/24"}]}' ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
esac
`

// withCNI configures the network podnet, and returns the log of the plugin's calls.
func (b *box) withCNI() (log func() string) {
	b.Helper()
	dir := b.TempDir()
	for name, text := range map[string]string{
		"podnet.conflist": `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "dummy"}]}`, "dummy": script,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	b.CNIConfig, b.CNIPlugins, b.Network = dir, []string{dir}, "podnet"
	return func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return string(text)
	}
}

// Apps share the network that CNI's plugins have made for the pod. Its removal calls them with the
// configuration that it was made with.
func TestAPodHasANetworkOfCNI(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		calls := b.withCNI()
		made, err := b.Create(t.Context(), local.PodConfig{Stage1: b.stage1, Injectable: true})
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{b, made}
		p.add("one", "ip -o -4 address show; hostname")
		p.start("one")
		p.await("one", local.Exited)
		paths, err := p.Logs("one")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(paths[0])
		if err != nil || !strings.Contains(string(text), "192.0.2.7/24") || !strings.Contains(string(text), "127.0.0.1/8") || !strings.Contains(string(text), "rkt-"+p.UUID()) {
			t.Errorf("%s, %v", text, err)
		}
		if err := os.Remove(filepath.Join(b.CNIConfig, "podnet.conflist")); err != nil {
			t.Fatal(err)
		}
		if err := p.Remove(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if want := "ADD " + p.UUID() + " eth0\nDEL " + p.UUID() + " eth0\n"; calls() != want {
			t.Errorf("calls: %q, want %q", calls(), want)
		}
	})
}

// A plugin that fails: nothing of the pod is left.
func TestAPodWhoseNetworkFailsLeavesNothing(t *testing.T) {
	b := newBox(t, "native")
	calls := b.withCNI()
	if err := os.WriteFile(filepath.Join(b.CNIConfig, "dummy"), []byte(strings.Replace(script, "case", "[ $CNI_COMMAND = DEL ] || exit 1; case", 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), local.PodConfig{}); err == nil || !strings.Contains(err.Error(), "network podnet") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(calls(), "DEL ") || len(b.uuids()) != 0 {
		t.Errorf("calls: %q, pods: %v", calls(), b.uuids())
	}
}

// A pod that ends with its apps: no process is left, and the states, times and exits can be read
// until it is removed.
func TestAPodEndsWithItsLastApp(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		made, err := b.Create(t.Context(), local.PodConfig{Stage1: b.stage1, EndsWithApps: true, Apps: []local.AppConfig{
			config("one", "exit 3"), config("two", "trap 'exit 4' TERM; while :; do sleep 0.05; done"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{b, made}
		if err := p.StartAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.await("one", local.Exited)
		p.expect("two", local.Running)
		before := p.status("two")
		server := p.server()
		for what, err := range map[string]error{
			"add": p.Pod.Add(t.Context(), config("three", "true")), "rm": p.Pod.Delete(t.Context(), "one", 0),
		} {
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "--injectable") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := p.Stop(t.Context(), "two", soon()); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "the pod has ended", func() (bool, string) {
			st := p.PodStatus(t.Context())
			return st.State == local.PodExited && commandLine(server) == "", string(st.State)
		})
		for name, code := range map[string]int64{"one": 3, "two": 4} {
			if st := p.expect(name, local.Exited); st.ExitCode == nil || *st.ExitCode != code || st.StartedAt.IsZero() || st.FinishedAt.Before(st.StartedAt) {
				t.Errorf("%s: %+v, want code %d", name, st, code)
			}
		}
		if st := p.status("two"); !st.StartedAt.Equal(before.StartedAt) || !st.CreatedAt.Equal(before.CreatedAt) {
			t.Errorf("%+v, before its end %+v", st, before)
		}
		if left := slices.DeleteFunc(b.left(), func(s string) bool { return strings.HasSuffix(s, "/local/"+p.UUID()) }); len(left) > 0 {
			for _, l := range left {
				if strings.HasPrefix(l, "process") || strings.HasPrefix(l, "mount") {
					t.Errorf("left: %s", l)
				}
			}
		}
	})
}

// The log of an app is bounded, whatever the app writes.
func TestAFloodOfOutputDoesNotFillTheDisk(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("flood", "dd if=/dev/zero bs=1048576 count=50; echo end")
	p.start("flood")
	p.await("flood", local.Exited)
	wait.Observe(t, "the log has everything", func() (bool, string) {
		paths, err := p.Logs("flood")
		if err != nil || len(paths) == 0 {
			return false, fmt.Sprint(err)
		}
		text, err := os.ReadFile(paths[len(paths)-1])
		return err == nil && strings.Contains(string(text), "end\n"), fmt.Sprint(err)
	})
	paths, err := p.Logs("flood") // again: the files of before may have been listed while they were renamed
	if err != nil || len(paths) != local.LogFiles {
		t.Error(paths, err)
	}
	for _, path := range paths {
		if st, err := os.Stat(path); err != nil || st.Size() > local.LogSize {
			t.Errorf("%s: %d bytes, %v", path, st.Size(), err)
		}
	}
}

// What is mounted below an app's directory survives the app: a removal that followed the mount
// would remove files of the host.
func TestARemovalFollowsNoMount(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("web", "true")
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(host, filepath.Join(p.DataDir, "local", p.UUID(), "apps/web/upper"), "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.Pod.Delete(t.Context(), "web", 0); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(host, "file")); err != nil {
		t.Error(err)
	}
}

// Pods that are made at the same time: no command takes the pod of another for one that was left
// behind.
func TestPodsCanBeMadeAtTheSameTime(t *testing.T) {
	b := newBox(t, "native")
	const n = 8
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := b.Create(t.Context(), local.PodConfig{})
			errs <- err
		}()
	}
	for range n {
		if err := wait.For(t, "a pod", errs); err != nil {
			t.Error(err)
		}
	}
	if made := b.uuids(); len(made) != n {
		t.Errorf("%d pods, want %d", len(made), n)
	}
	for _, uuid := range b.uuids() {
		p, err := b.Open(uuid)
		if err != nil || p.PodStatus(t.Context()).State != local.PodRunning {
			t.Errorf("%s: %v, %v", uuid, p, err)
		}
	}
}
