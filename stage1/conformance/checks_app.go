package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// addChecks check app/add.
func addChecks() []Check {
	refused := func(id, sentence string, words []string, change func(*specs.Spec)) Check {
		return inPod("add/"+id, "5 app/add", sentence, func(ctx context.Context, b *barePod) error {
			return b.refuses(ctx, change, words...)
		})
	}
	program := func(path string) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Process.Args = []string{path} }
	}
	return []Check{
		inPod("add/blocked", "5 app/add", "app/add leaves the app's first process created and blocked: the program runs after app/start, and not before", checkBlocked),
		inPod("add/namespaces", "5 app/add", "the namespaces of a created process are final, and its own where the spec asks for it", checkNamespaces),
		inPod("add/cgroup", "5 app/add", "the created process is in the app's cgroup, and no process of the stage1's is", checkCgroup),
		inPod("add/descriptors", "5 app/add", "the created process holds neither the pod's lock nor a pipe of the stage1's", checkCreatedDescriptors),
		refused("missing", "a program that is missing fails app/add, in words that clients look for",
			[]string{"no such file or directory", "executable file not found in $PATH"}, program("/bin/absent")),
		refused("not-in-path", "a program without a slash that is not in PATH fails app/add, in words that clients look for",
			[]string{"no such file or directory", "executable file not found in $PATH"}, program("absent")),
		refused("not-executable", "a file without the right to be executed fails app/add as permission denied",
			[]string{"permission denied"}, program("/bin/not-executable")),
		refused("directory", "a directory in the place of the program fails app/add, in words that clients look for",
			[]string{"is a directory", "permission denied"}, program("/bin")),
		refused("working-directory", "a working directory that cannot be entered fails app/add",
			nil, func(s *specs.Spec) { s.Process.Cwd = "/bin/not-executable" }),
		inPod("add/undone", "5 app/add", "after an app/add that failed nothing of the app is left, and the pod goes on", checkUndone),
		mutable("add/unknown-value", "5 app/add", "a value that the stage1 cannot honour is refused, and never skipped", checkUnknownValue),
		mutable("add/killed", "5 app/add", "an app/add that is killed half-way leaves nothing that app/stop, app/rm, stop and gc do not clean up", checkAddKilled),
		mutable("add/second", "5 app/add", "a pod has several apps, each with its own exit", checkSecond),
		mutable("add/concurrent", "5 app/add", "apps are added and started at the same time", checkConcurrent),
	}
}

// refuses fails if app/add accepts an app, or if its error has none of the words.
func (b *barePod) refuses(ctx context.Context, change func(*specs.Spec), words ...string) error {
	_, err := b.add(ctx, "app", change, "exit", "0")
	return failsWith("app/add", err, words)
}

// failsWith returns an error if an entrypoint has succeeded, or if the text of its error has
// none of the words.
func failsWith(entrypoint string, err error, words []string) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s has succeeded", entrypoint)
	case len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }):
		return nil
	}
	return fmt.Errorf("it fails in other words than %q, which clients look for: %w", words, err)
}

func checkBlocked(ctx context.Context, b *barePod) error {
	a := must(b.add(ctx, "app", nil, "wait"))
	if !proc.Alive(a.PID, a.StartTime) {
		return fmt.Errorf("process %d, which app/add has reported, does not live", a.PID)
	}
	time.Sleep(settle())
	if text := a.streams.out.now(); text != "" {
		return fmt.Errorf("before app/start the program has written %q", text)
	}
	try(a.invoke(ctx, abi.AppStart))
	return a.streams.out.awaitWord(ctx, "waiting")
}

// namespacesOf returns the namespaces of a process, from /proc.
func namespacesOf(pid int) map[string]string {
	all := map[string]string{}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts", "user"} {
		all[ns] = must(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns)))
	}
	return all
}

func checkNamespaces(ctx context.Context, b *barePod) error {
	a := must(b.add(ctx, "app", nil, "wait"))
	created := namespacesOf(a.PID)
	try(a.invoke(ctx, abi.AppStart))
	try(a.streams.out.awaitWord(ctx, "waiting"))
	running := namespacesOf(a.PID)
	for ns, link := range created {
		if running[ns] != link {
			return fmt.Errorf("the %s namespace was %s when the app was created, and is %s now", ns, link, running[ns])
		}
	}
	if !b.t.isolates || b.t.image.Owns(abi.OwnProcesses) {
		return nil
	}
	own := namespacesOf(os.Getpid())
	for _, ns := range []string{"mnt", "pid", "ipc", "uts"} {
		if created[ns] == own[ns] {
			return fmt.Errorf("the %s namespace is the host's", ns)
		}
	}
	return nil
}

func checkCgroup(ctx context.Context, b *barePod) error {
	a := must(b.add(ctx, "app", nil, "wait"))
	alone := func(when string) error {
		for _, dir := range a.group.ABI().All() {
			pids := must(pidsIn(dir))
			if !slices.Equal(pids, []string{fmt.Sprint(a.PID)}) {
				return fmt.Errorf("%s the cgroup %s has the processes %v, and should have %d alone", when, dir, pids, a.PID)
			}
		}
		return nil
	}
	try(alone("after app/add"))
	try(a.invoke(ctx, abi.AppStart))
	try(a.streams.out.awaitWord(ctx, "waiting"))
	return alone("after app/start")
}

func pidsIn(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return strings.Fields(string(b)), err
}

func checkCreatedDescriptors(ctx context.Context, b *barePod) error {
	other := must(b.start(ctx, "other", "wait"))
	a := must(b.add(ctx, "app", nil, "wait"))
	open := func(pid int) map[string]string {
		all := map[string]string{}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil {
				all[to] = filepath.Base(l)
			}
		}
		return all
	}
	mine, supervisor, theirs := open(a.PID), open(b.sup.PID), open(other.PID)
	if fd := mine[b.dir]; fd != "" {
		return fmt.Errorf("the created process has the pod's directory open as %s, and with it the lock", fd)
	}
	for to, fd := range mine {
		if !strings.HasPrefix(to, "pipe:") {
			continue
		}
		if theirs[to] != "" {
			return fmt.Errorf("the created process has a pipe of another app as %s", fd)
		}
		if supervisor[to] == "5" || supervisor[to] == fmt.Sprint(abi.NotifyFD) {
			return fmt.Errorf("the created process has the notice pipe as %s", fd)
		}
	}
	return nil
}

func checkUndone(ctx context.Context, b *barePod) error {
	before := descendants()
	a := b.prepare("first", func(s *specs.Spec) { s.Process.Args = []string{"/bin/absent"} })
	if err := a.add(ctx); err == nil {
		return errors.New("app/add of a missing program has succeeded")
	}
	try(eventually(ctx, "only the processes of before are there", func() bool { return len(descendants()) <= len(before) }))
	if pids, err := a.group.Pids(); err != nil || len(pids) > 0 {
		return fmt.Errorf("processes %v are left in the app's cgroup: %w", pids, err)
	}
	try(codeOf("app/rm of what was not added", a.invoke(ctx, abi.AppRm), 0))
	next, err := b.start(ctx, "second", "exit", "0")
	if err != nil {
		return fmt.Errorf("the app after it: %w", err)
	}
	must(next.ended(ctx))
	return nil
}

func checkUnknownValue(ctx context.Context, t *trial) error {
	nonsense := func(s *specs.Spec) {
		if s.Linux == nil {
			s.Linux = &specs.Linux{}
		}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "conformance"})
	}
	if !t.isolates {
		s := t.plainSpec("exit", "0")
		nonsense(s)
		if t.declares(s) == nil {
			return errors.New("it declares /linux/namespaces of any type, and has none")
		}
		return nil
	}
	return t.runningPod(ctx).refuses(ctx, nonsense)
}

// checkAddKilled kills app/add at several moments between its beginning and its end.
func checkAddKilled(ctx context.Context, t *trial) error {
	whole := t.addAndClean(ctx, "whole", t.config.Timeout)
	for _, tenths := range []time.Duration{1, 3, 5, 7, 9} {
		after := whole * tenths / 10
		err := caught(func() error {
			t.addAndClean(ctx, fmt.Sprintf("killed-%d", tenths), after)
			return nil
		})
		if err != nil {
			return fmt.Errorf("app/add was killed after %s: %w", after, err)
		}
	}
	return nil
}

// addAndClean makes a pod and calls app/add, which it kills after limit, and then cleans
// up. It returns how long app/add has taken.
func (t *trial) addAndClean(ctx context.Context, name string, limit time.Duration) time.Duration {
	b := t.barePodIn(name)
	b.run(ctx)
	a := b.prepare(name, nil, "wait")
	began := time.Now()
	short, cancel := context.WithTimeout(ctx, limit)
	_ = a.add(short) // the call usually fails, because it is killed
	cancel()
	took := time.Since(began)
	a.cleanUp(ctx)
	return took
}

// cleanUp does the work of stage 0 after an app/add that was killed.
func (a *bareApp) cleanUp(ctx context.Context) {
	if a.b.t.image.Has(abi.AppStop) {
		try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0, abi.ExitNotFound))
	}
	try(a.group.Kill(ctx))
	try(codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0))
	try(a.b.stop(ctx, false))
	if a.b.t.image.Has(abi.GC) {
		try(codeOf("gc", a.b.invoke(ctx, abi.GC, ""), 0))
	}
}

func checkSecond(ctx context.Context, t *trial) error {
	w := t.wholePod()
	first := must(w.waiting(ctx, nil))
	for _, code := range []string{"3", "4"} {
		a := must(w.start(ctx, nil, "exit", code))
		try(a.ends(ctx, "", uint32(code[0]-'0')))
		try(a.remove(ctx))
	}
	if st, err := w.Status(first.id, ""); err != nil || st.Exit.Code != 0 || !st.Exit.At.IsZero() {
		return fmt.Errorf("the first app is %s after others have ended: %w", st.State, err)
	}
	return nil
}

func checkConcurrent(ctx context.Context, t *trial) error {
	w := t.wholePod()
	must(w.waiting(ctx, nil))
	var apps [several]*wholeApp
	for i := range apps { // the trial's own steps are made one by one
		apps[i] = w.prepareApp(nil, "exit", fmt.Sprint(10+i))
	}
	return atOnce(func(i int) error {
		a := apps[i]
		try(a.createNow(ctx))
		must(w.Start(ctx, a.id, ""))
		return a.ends(ctx, "", uint32(10+i))
	})
}

// several is the number of concurrent calls of atOnce.
const several = 4

// atOnce calls a function for the numbers below several at the same time, each on a goroutine
// of its own.
func atOnce(do func(i int) error) error {
	failed := make(chan error, several)
	for i := range several {
		go func() { failed <- caught(func() error { return do(i) }) }()
	}
	var err error
	for range several {
		err = errors.Join(err, <-failed)
	}
	return err
}

// removeChecks check app/stop and app/rm.
func removeChecks() []Check {
	return []Check{
		inPod("app-stop/living", "5 app/stop", "app/stop ends an app that runs", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}, abi.AppStop),
		inPod("app-stop/created", "5 app/stop", "app/stop ends an app that was never started", func(ctx context.Context, b *barePod) error {
			a := must(b.add(ctx, "app", nil, "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}, abi.AppStop),
		inPod("app-stop/ended", "5 app/stop", "app/stop of an app that has ended succeeds", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0)
		}, abi.AppStop),
		inPod("app-stop/unknown", "5 app/stop", "app/stop of an app that never was returns 5", func(ctx context.Context, b *barePod) error {
			return codeOf("app/stop", b.invoke(ctx, abi.AppStop, "nobody"), abi.ExitNotFound)
		}, abi.AppStop),
		inPod("app-rm/living", "5 app/rm", "app/rm of an app that runs returns 6, and the app runs on", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/rm", a.invoke(ctx, abi.AppRm), abi.ExitFailedPrecondition))
			if !proc.Alive(a.PID, a.StartTime) {
				return errors.New("app/rm has ended the app")
			}
			return nil
		}, abi.AppRm),
		inPod("app-rm/ended", "5 app/rm", "app/rm of an app that has ended succeeds, and again", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return errors.Join(codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0), codeOf("the second app/rm", a.invoke(ctx, abi.AppRm), 0))
		}, abi.AppRm),
		inPod("app-rm/unknown", "5 app/rm", "app/rm of an app that never was succeeds", func(ctx context.Context, b *barePod) error {
			return codeOf("app/rm", b.invoke(ctx, abi.AppRm, "nobody"), 0)
		}, abi.AppRm),
	}
}
