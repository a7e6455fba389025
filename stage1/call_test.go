package stage1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// dump writes what a call gets into files of the pod directory.
const dump = `
e=rkt.$(basename "$0")
cp "$RKT_STAGE1_REQUEST" $e.request
stat -c %a "$RKT_STAGE1_REQUEST" > $e.mode
[ -z "${RKT_PROCESS:-}" ] || { cp "$RKT_PROCESS" $e.process; stat -c %a "$RKT_PROCESS" >> $e.mode; }
env | grep -v '^PWD=' | grep -v '^_=' | grep -v '^SHLVL=' | grep -v '^OLDPWD=' | sort > $e.env
pwd > $e.pwd
for a in "$0" "$@"; do echo "$a"; done > $e.argv
ls /proc/$$/fd > $e.fds
`

func (p *fakePod) dumped(t *testing.T, e abi.Entrypoint, what string) string {
	t.Helper()
	name := "rkt." + strings.ReplaceAll(string(e), "/", "_") + "." + what
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (p *fakePod) expectDump(t *testing.T, e abi.Entrypoint, what string, want ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(p.dumped(t, e, what), "\n"), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("%s: %s\n got %q\nwant %q", e, what, got, want)
	}
}

// all is an image that dumps every call.
func all() stage1test.Scripts {
	s := stage1test.Scripts{
		abi.Run:    dump + `ready $$; exec sleep 1000`,
		abi.AppAdd: dump + `sleep 1000 3>&- 4>&- & ready $!`,
		abi.Enter:  dump + `sleep 1000 3>&- 4>&- & ready $!`,
	}
	for _, e := range abi.Entrypoints() {
		if s[e] == "" {
			s[e] = dump
		}
	}
	return s
}

func lockOf(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// run executes `run`, whose supervisor is killed with the test.
func (p *fakePod) run(t testing.TB, c pod.Call) *pod.Supervisor {
	t.Helper()
	lock, err := os.Open(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	sup, err := p.Run(t.Context(), c, lock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sup.Kill(); err != nil {
			t.Error(err)
		}
		<-sup.Done
		if err := sup.Notices.Close(); err != nil {
			t.Error(err)
		}
	})
	return sup
}

// endOf kills a process that stage 0 has inherited and waits for its end.
func endOf(t testing.TB, q *pod.Process) {
	t.Helper()
	if err := proc.Signal(q.PID, q.StartTime, 9); err != nil && !errors.Is(err, proc.ErrGone) {
		t.Error(err)
	}
	wait.Until(t, fmt.Sprintf("process %d ends", q.PID), func() bool { return !proc.Alive(q.PID, q.StartTime) })
}

func TestEveryCallGetsItsArgumentsEnvironmentAndDescriptors(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	t.Setenv("SECRET_OF_THE_SHIM", "x")
	p := newFakePod(t, all())
	rootfs := filepath.Join(p.dir, RootfsDir)
	enter := rootfs + "/enter"

	c := p.call(abi.Run)
	c.Leader, c.Request.Debug = 0, true
	c.Request.Sandbox = &abi.Sandbox{Hostname: "web"}
	c.Request.Container, c.Request.Bundle, c.Request.Rootfs = "box", "/h", "/h/rootfs"
	c.Request.Cgroup = &abi.Cgroup{Version: 2, Dirs: []string{"/cg"}}
	c.Spec = readSpec(`{ "process": {"args": ["/hold"]} }`)
	p.run(t, c)
	p.expectDump(t, abi.Run, "argv", rootfs+"/run", "--debug", "--net=host", "--hostname=web", "--mutable", podUUID)
	p.expectDump(t, abi.Run, "pwd", p.dir)
	p.expectDump(t, abi.Run, "mode", "600")
	expectEnv(t, p.dumped(t, abi.Run, "env"), "GOMAXPROCS=1", "PATH=/usr/bin:/bin", "RKT_BUNDLE=/h", "RKT_CGROUP=/cg", "RKT_CONTAINER=box",
		"RKT_ERROR_FD=3", "RKT_LOCK_FD=5", "RKT_NOTIFY_FD=6", "RKT_READY_FD=4")
	if r := p.dumped(t, abi.Run, "request"); !strings.Contains(r, `"spec":`+string(c.Spec.Text)) || !strings.Contains(r, `"hostname":"web"`) {
		t.Errorf("the holder is not in %s", r)
	}
	expectFDs(t, p.dumped(t, abi.Run, "fds"), "0", "1", "2", "3", "4", "5", "6")

	c = p.call(abi.AppAdd)
	c.Request.Container, c.Request.Bundle, c.Request.Rootfs = "redis", "/b", "/b/rootfs"
	c.Request.Cgroup = &abi.Cgroup{Version: 1, Dirs: []string{"/cg/a", "/cg/b"}}
	c.Spec = readSpec("{ \"process\": {\"args\":\t[\"<&>\\u00e9\", 1e400]} }")
	q, err := p.Add(t.Context(), c, [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	defer endOf(t, q)
	p.expectDump(t, abi.AppAdd, "argv", rootfs+"/app_add", "--debug=false", "--uuid="+podUUID, "--app=app-1")
	p.expectDump(t, abi.AppAdd, "mode", "600")
	expectEnv(t, p.dumped(t, abi.AppAdd, "env"), "PATH=/usr/bin:/bin", "RKT_APP=app-1", "RKT_BUNDLE=/b", "RKT_CGROUP=/cg/a:/cg/b",
		"RKT_CONTAINER=redis", "RKT_ERROR_FD=3", "RKT_READY_FD=4", "RKT_STAGE1_ENTERCMD="+enter, "RKT_STAGE1_ENTERPID=77")
	expectFDs(t, p.dumped(t, abi.AppAdd, "fds"), "0", "1", "2", "3", "4")
	if r := p.dumped(t, abi.AppAdd, "request"); !strings.Contains(r, `"spec":`+string(c.Spec.Text)) || !json.Valid([]byte(r)) {
		t.Errorf("the spec is not byte for byte in %s", r)
	}

	c = p.call(abi.Enter)
	c.Request.Exec, c.Process = "exec.1", readProcess(`{ "args": ["<sh>", "-c", "a b", ""] }`)
	q, err = p.Enter(t.Context(), c, [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	defer endOf(t, q)
	p.expectDump(t, abi.Enter, "argv", enter, "--pid=77", "--appname=app-1", "--", "<sh>", "-c", "a b", "")
	p.expectDump(t, abi.Enter, "mode", "600", "600")
	p.expectDump(t, abi.Enter, "process", `{ "args": ["<sh>", "-c", "a b", ""] }`)
	expectEnv(t, p.dumped(t, abi.Enter, "env"), "PATH=/usr/bin:/bin", "RKT_APP=app-1", "RKT_ERROR_FD=3", "RKT_EXEC=exec.1", "RKT_READY_FD=4")

	for e, want := range map[abi.Entrypoint][]string{
		abi.AppStart: {"--debug=false", "--app=app-1"}, abi.AppStop: {"--debug=false", "--app=app-1"},
		abi.AppRm: {"--debug=false", "--app=app-1"}, abi.AppSignal: {"--debug=false", "--app=app-1"},
		abi.Stop: {"--force", podUUID}, abi.GC: {podUUID},
	} {
		c := p.call(e)
		c.Force = true
		if e == abi.AppSignal {
			c.Request.Signal, c.Request.Exec = 15, "exec.1"
		}
		if err := p.Invoke(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		path := rootfs + "/" + strings.ReplaceAll(string(e), "/", "_")
		p.expectDump(t, e, "argv", append([]string{path}, want...)...)
		expectFDs(t, p.dumped(t, e, "fds"), "0", "1", "2", "3")
		var r abi.Request
		if err := json.Unmarshal([]byte(p.dumped(t, e, "request")), &r); err != nil || r.Version != 7 || r.Entrypoint != e || r.Pod != podUUID {
			t.Errorf("%s: request %+v, %v", e, r, err)
		}
	}
	expectEnv(t, p.dumped(t, abi.AppSignal, "env"), "PATH=/usr/bin:/bin", "RKT_APP=app-1", "RKT_ERROR_FD=3", "RKT_EXEC=exec.1",
		"RKT_SIGNAL=15", "RKT_STAGE1_ENTERCMD="+enter, "RKT_STAGE1_ENTERPID=77")
	expectEnv(t, p.dumped(t, abi.Stop, "env"), "PATH=/usr/bin:/bin", "RKT_ERROR_FD=3")
	p.expectNoFiles(t)
}

// requirements.md#T4
func TestTheProcessOfAnExecSaysOfTheTerminalWhatTheRequestSays(t *testing.T) {
	for _, c := range []struct {
		process  string
		terminal bool
		want     string // "": the same bytes
	}{
		{` { "args": ["<sh>"] }`, false, ""},
		{`{"args": ["sh"], "terminal" : true}`, true, ""},
		{`{"args":["\"terminal\":true"],"x":1e400,"terminal":false}`, true, `{"args":["\"terminal\":true"],"x":1e400,"terminal":true}`},
		{`{"terminal":true,"args":["sh"]}`, false, `{"args":["sh"],"terminal":false}`},
		{`{"args":["sh"]}`, true, `{"args":["sh"],"terminal":true}`},
	} {
		k := &Call{Call: pod.Call{Request: abi.Request{Terminal: c.terminal}, Process: readProcess(c.process)}}
		if c.want == "" {
			c.want = c.process
		}
		if got := string(ociProcess(k)); got != c.want {
			t.Errorf("%s with terminal %v: %s; want %s", c.process, c.terminal, got, c.want)
		}
	}
}

// expectEnv compares an environment. Of the variables with the paths of documents
// it only checks that they are set.
func expectEnv(t *testing.T, env string, want ...string) {
	t.Helper()
	var got []string
	request := false
	for line := range strings.Lines(env) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, abi.EnvRequest+"=") {
			request = true
		} else if !strings.HasPrefix(line, abi.EnvProcess+"=") {
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) || !request {
		t.Errorf("environment\n got %q\nwant %q", got, want)
	}
}

// expectFDs compares descriptors; those above 9 are the shell's own.
func expectFDs(t *testing.T, list string, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(strings.Fields(list), func(fd string) bool { return len(fd) > 1 })
	if !slices.Equal(got, want) {
		t.Errorf("descriptors %q, want %q", got, want)
	}
}

func TestTheAppsStdioIsTheCallsAndNothingElseIsWrittenThere(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.AppAdd: `cat; echo out; echo err >&2; sleep 1000 0<&- 1>&- 2>&- 3>&- 4>&- & ready $!`,
	})
	in, out, errs := tempFile(t, "in\n"), tempFile(t, ""), tempFile(t, "")
	q, err := p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{in, out, errs})
	if err != nil {
		t.Fatal(err)
	}
	defer endOf(t, q)
	for f, want := range map[*os.File]string{out: "in\nout\n", errs: "err\n"} {
		if b, err := os.ReadFile(f.Name()); err != nil || string(b) != want {
			t.Errorf("%q, %v; want %q", b, err, want)
		}
	}
}

func tempFile(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Whatever a stage1 does wrong, the error names the stage1 and the entrypoint, and
// says what was wrong. newFakePod checks that nothing is left behind.
func TestWhateverAnEntrypointDoesWrongIsAnErrorForAPerson(t *testing.T) {
	const begins = "stage1 fake: app/add: "
	for name, c := range map[string]struct {
		script string
		want   []string
		code   int
		is     error
	}{
		"fails with words":      {`fail 3 'exec: "foo": executable file not found in $PATH'`, []string{begins + `exec: "foo": executable file not found in $PATH`}, 3, nil},
		"fails without a word":  {`exit 4`, []string{begins + "exit code 4", "RKT_ERROR_FD"}, 4, nil},
		"not found":             {`fail 5 'no such app'`, []string{begins + "no such app"}, 5, errdefs.ErrNotFound},
		"in another state":      {`fail 6 'it has ended'`, []string{begins + "it has ended"}, 6, errdefs.ErrFailedPrecondition},
		"cannot do that":        {`fail 7 '/linux/intelRdt'`, []string{begins + "/linux/intelRdt"}, 7, errdefs.ErrNotImplemented},
		"silent, cannot":        {`exit 7`, []string{begins + "exit code 7"}, 7, errdefs.ErrNotImplemented},
		"crashes":               {`kill -SEGV $$`, []string{begins, "signal 11", "segmentation fault"}, 139, nil},
		"crashes with words":    {`echo assertion >&3; kill -ABRT $$`, []string{begins, "signal 6", "assertion"}, 134, nil},
		"says too much":         {`yes 0123456789 | head -c 1000000 >&3; echo the end >&3; exit 1`, []string{begins, "the end"}, 1, nil},
		"says rubbish":          {`printf '\377\376 x\000' >&3; exit 1`, []string{begins, "\uFFFD x"}, 1, nil},
		"says nothing of ready": {`exit 0`, []string{begins, "without writing a line", "RKT_READY_FD"}, 0, nil},
		"closes the ready pipe": {`exec 4>&-; sleep 1000`, []string{begins, "closed RKT_READY_FD"}, -1, nil},
		"garbage":               {`echo hello, world >&4; exec sleep 1000`, []string{begins, `"hello, world\n"`, `{"pid": 4711}`}, -1, nil},
		"no newline":            {`printf '{"pid": 1' >&4; exit 0`, []string{begins, `{\"pid\": 1`, "no newline"}, -1, nil},
		"an endless line":       {`yes | tr -d '\n' >&4`, []string{begins, `"yyyyy`, "no newline", "1024"}, -1, nil},
		"no pid":                {`echo '{}' >&4`, []string{begins, `{}`, `{"pid": 4711}`}, -1, nil},
		"a pid of nobody":       {`ready 4194304`, []string{begins, "process 4194304", "no such process"}, -1, nil},
		"the shim's pid":        {`ready $PPID`, []string{begins, "the shim"}, -1, nil},
		"another start time":    {`sleep 1000 & echo "{\"pid\": $!, \"starttime\": 1}" >&4; wait`, []string{begins, "started at 1,"}, -1, nil},
		"the machine's first":   {`ready 1`, []string{begins, "process 1 ", "before the shim"}, -1, nil},
		"a kernel thread":       {`ready 2`, []string{begins, "process 2 ", "before the shim"}, -1, nil},
		"the shim's parent":     {`ready $(cut -d' ' -f4 /proc/$PPID/stat)`, []string{begins, "before the shim"}, -1, nil},
		"an escape sequence":    {`printf '\033]0;title\007 \033[2J\342\200\256 \302\2331m\000' >&3; exit 1`, []string{begins + `\x1b]0;title\a \x1b[2J\u202e \u009b1m\x00`}, 1, nil},
		"fails after ready":     {`sleep 1000 & ready $!; fail 1 'poststart'`, []string{begins + "poststart"}, 1, nil},
		"leaves children":       {`sleep 1000 & sleep 1000 & fail 1 'no memory'`, []string{begins + "no memory"}, 1, nil},
		"leaves children, 0":    {`sleep 1000 & exit 0`, []string{begins, "without writing a line"}, 0, nil},
		"is a directory":        {`exec /`, []string{begins}, 126, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePod(t, stage1test.Scripts{abi.AppAdd: c.script})
			q, err := p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{})
			if err == nil {
				endOf(t, q)
				t.Fatal("no error")
			}
			expectError(t, err, c.code, c.is, c.want...)
			if len(err.Error()) > abi.MaxErrorText+200 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			p.expectJournal(t, c.code)
		})
	}
}

func expectError(t *testing.T, err error, code int, is error, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %.300q does not say %q", err, w)
		}
	}
	var ee *EntrypointError
	if !errors.As(err, &ee) {
		t.Fatalf("error %v has the type %T", err, err)
	}
	if ee.Code != code || ee.Duration <= 0 || ee.Stage1 != "fake" {
		t.Errorf("code %d, duration %v, stage1 %s; want code %d", ee.Code, ee.Duration, ee.Stage1, code)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("error %v is not %v", err, is)
	}
	if is == nil && (errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) || errdefs.IsNotImplemented(err)) {
		t.Errorf("error %v has a meaning of its own", err)
	}
}

// expectJournal looks at the last entry.
func (p *fakePod) expectJournal(t *testing.T, code int) {
	t.Helper()
	entries, err := journal.Read(p.dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("journal: %v, %v", entries, err)
	}
	if last := entries[len(entries)-1]; last.Code != code || last.Error == "" || last.App != "app-1" || len(last.Argv) != 4 {
		t.Errorf("in the journal: %+v", last)
	}
}

func TestAnEntrypointThatHangsIsKilledWithAllItHasStarted(t *testing.T) {
	const hang = `echo waiting >&3; sleep 1000 & sleep 1000`
	p := newFakePod(t, stage1test.Scripts{abi.Run: hang, abi.AppAdd: hang, abi.Enter: hang, abi.AppStart: hang, abi.AppStats: hang})
	calls := map[abi.Entrypoint]func(context.Context) error{
		abi.Run: func(ctx context.Context) error {
			_, err := p.Run(ctx, p.call(abi.Run), lockOf(t, p.dir))
			return err
		},
		abi.AppAdd: func(ctx context.Context) error {
			_, err := p.Add(ctx, p.call(abi.AppAdd), [3]*os.File{})
			return err
		},
		abi.Enter: func(ctx context.Context) error {
			_, err := p.Enter(ctx, p.call(abi.Enter), [3]*os.File{})
			return err
		},
		abi.AppStart: func(ctx context.Context) error { return p.Invoke(ctx, p.call(abi.AppStart)) },
		abi.AppStats: func(ctx context.Context) error {
			_, err := p.Ask(ctx, p.call(abi.AppStats))
			return err
		},
	}
	p.hurry(300 * time.Millisecond)
	for e, call := range calls {
		err := call(t.Context())
		if err == nil {
			t.Fatalf("%s: no error", e)
		}
		expectError(t, err, -1, context.DeadlineExceeded, fmt.Sprintf("stage1 fake: %s: no answer within 300ms", e),
			fmt.Sprintf("; the entrypoint was killed; see %s/journal", p.dir))
		if e != abi.AppStart && !strings.HasSuffix(err.Error(), ": waiting") {
			t.Errorf("%v does not say what it said", err)
		}
	}
	p.hurry(time.Hour)
	for e, call := range calls {
		reason := errors.New("the client went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(reason) })
		expectError(t, call(ctx), -1, reason, fmt.Sprintf("stage1 fake: %s: given up after", e), "the client went away", "was killed")
	}
}

func TestAnEntrypointThatHangsAfterReadyIsKilled(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{abi.AppAdd: `sleep 1000 & ready $!; wait`})
	p.hurry(500 * time.Millisecond)
	_, err := p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{})
	expectError(t, err, -1, context.DeadlineExceeded, "no answer within 500ms")
}

func TestAnEntrypointThatCannotBeExecutedIsNamed(t *testing.T) {
	p := newFakePod(t, nil)
	path := filepath.Join(p.dir, RootfsDir, "app_start")
	source := filepath.Join(p.Rootfs(), "app_start")
	for _, c := range []struct {
		spoil func() error
		want  string
	}{
		{func() error { return os.Chmod(source, 0o644) }, "not executable (mode 0644)"},
		{func() error { return stage1test.Replace(source, os.Mkdir) }, "not a regular file"},
		{func() error { return stage1test.Replace(source, script("not a program")) }, "neither a program nor a script"},
		{func() error { return stage1test.Replace(source, script("#!/nonexistent\n")) }, "interpreter"},
		{func() error { return os.Remove(source) }, "missing; is the image's tree mounted there?"},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		err := p.Invoke(t.Context(), p.call(abi.AppStart))
		if err == nil {
			t.Fatalf("%s: no error", c.want)
		}
		expectError(t, err, -1, nil, "stage1 fake: app/start: cannot execute "+path, c.want)
		// A client would take these phrases for the reason why the app cannot be
		// executed.
		for _, word := range []string{"no such file", "permission denied", "executable file not found"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("the error says %q: %v", word, err)
			}
		}
	}
}

func script(text string) func(string, os.FileMode) error {
	return func(path string, mode os.FileMode) error { return os.WriteFile(path, []byte(text), mode) }
}

func TestAnEntrypointThatIsNotDeclaredIsNotImplemented(t *testing.T) {
	p := newFakePod(t, nil)
	_, err := p.Enter(t.Context(), p.call(abi.Enter), [3]*os.File{})
	if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "enter") {
		t.Errorf("error %v", err)
	}
	if err := p.Invoke(t.Context(), p.call(abi.AppPause)); !errdefs.IsNotImplemented(err) {
		t.Errorf("error %v", err)
	}
}

func TestGCOfAPodWithoutMountsMountsItsTreeFirst(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{abi.GC: "touch collected"})
	if err := p.Detach(p.dir); err != nil {
		t.Fatal(err)
	}
	if err := p.Invoke(t.Context(), p.call(abi.GC)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "collected")); err != nil {
		t.Error(err)
	}
}

// An image of rkt's versions has to have gc, and may have nothing to do in it.
func TestASkippedGCIsThereForCallsByHand(t *testing.T) {
	for _, skip := range []string{"", "gc"} {
		p := newPodOf(t, stage1test.Image{
			Scripts:     stage1test.Scripts{abi.GC: "touch collected"},
			Annotations: map[string]string{abi.AnnotationSkip: skip},
		})
		if has := p.Has(abi.GC); has != (skip == "") {
			t.Errorf("skip %q: stage 0 calls it: %v", skip, has)
		}
		if err := p.Invoke(t.Context(), p.call(abi.GC)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "collected")); err != nil {
			t.Error(err)
		}
	}
}
