package oci

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestAnExecRunsInTheAppAndIsLeftToStage0(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", a.PID))
	must(t, err)
	for i, code := range []int{0, 7} {
		out, stdout := pipe(t)
		q := a.enter(fmt.Sprintf("e.%d_x", i), nil, stdout, "sh", "-c", fmt.Sprintf("readlink /proc/self/ns/pid; umask; exit %d", code))
		q.ends(t, code)
		stdout.Close()
		if b, err := io.ReadAll(out); err != nil || string(b) != ns+"\n0022\n" {
			t.Errorf("exec wrote %q (%v), want %s", b, err, ns)
		}
	}
	exec := a.enter("long", nil, nil, "sleep", "1000")
	entries, err := os.ReadDir(filepath.Join(p.dir, stateDir, "apps/web"))
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "id init pid run" {
		t.Errorf("execs leave files: %s", got)
	}
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
	exec.ends(t, 137)
}

func TestAnExecHasTheUmaskOfItsProcess(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	for _, mask := range []uint32{0, 0o77, 0o777} {
		out, stdout := pipe(t)
		q := a.enter("e", func(s *specs.Process) { s.User.Umask = &mask }, stdout, "sh", "-c", "umask")
		q.ends(t, 0)
		stdout.Close()
		if b, err := io.ReadAll(out); err != nil || string(b) != fmt.Sprintf("%04o\n", mask) {
			t.Errorf("umask %q (%v), want %04o", b, err, mask)
		}
	}
}

// Both runtimes ignore oomScoreAdj of an exec. runc repeats the app's score, and crun leaves its
// own, which would be the shim's: the kernel would never choose the process.
func TestAnExecHasTheScoreOfItsProcessOrOfTheApp(t *testing.T) {
	for _, runtime := range []string{"runc", "crun"} {
		for _, score := range []*int{nil, new(300)} {
			name := runtime
			if score != nil {
				name += ", an app with a score"
			}
			t.Run(name, func(t *testing.T) { execsHaveScores(t, runtime, score) })
		}
	}
}

// execsHaveScores checks execs of an app with a score, or with the inherited one.
func execsHaveScores(t *testing.T, runtime string, score *int) {
	if _, err := exec.LookPath(runtime); err != nil {
		t.Skip("needs " + runtime)
	}
	apps := "0" // of the test
	if b, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		apps = strings.TrimSpace(string(b))
	}
	if score != nil {
		apps = fmt.Sprint(*score)
	}
	dir := imageDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "rootfs/runtimes"), []byte(runtime+"\n"), 0o644))
	p := newPodOf(t, "", dir)
	p.run()
	a := p.app("web", func(s *specs.Spec) { s.Process.OOMScoreAdj = score }, "sleep", "1000").start()
	for name, c := range map[string]struct {
		asked *int
		args  []string
		want  string
	}{
		"its own":     {new(77), nil, "77"},
		"the app's":   {nil, nil, apps},
		"a higher":    {new(555), nil, "555"},
		"of no field": {nil, []string{`"oomScoreAdj":500`, `{"oomScoreAdj":501}`}, apps},
	} {
		out, stdout := pipe(t)
		q := a.enter("e", func(s *specs.Process) { s.OOMScoreAdj = c.asked }, stdout, append([]string{"sh", "-c", "cat /proc/self/oom_score_adj"}, c.args...)...)
		q.ends(t, 0)
		stdout.Close()
		if b, err := io.ReadAll(out); err != nil || string(b) != c.want+"\n" {
			t.Errorf("%s: %q (%v), want %s", name, b, err, c.want)
		}
	}
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
}

func TestAnExecOfWhatCannotBeExecutedSaysWhyAndLeavesTheAppAlone(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	for _, bad := range badPrograms {
		_, err := a.tryEnter("e", func(s *specs.Process) { s.Cwd = bad.cwd }, nil, bad.args...)
		if text := expectCode(t, bad.name, 1, err); !strings.Contains(text, bad.words) {
			t.Errorf("%s: %q, want %q in it", bad.name, text, bad.words)
		}
	}
	// runc's own check before the exec does not find that these cannot be
	// executed.
	must(t, os.WriteFile(filepath.Join(p.root, "bin/script"), []byte("#!/absent\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(p.root, "bin/format"), []byte("\x7fELF?"), 0o755))
	for _, name := range []string{"script", "format"} {
		_, err := a.tryEnter("e", nil, nil, name)
		if text := expectCode(t, name, 1, err); !strings.Contains(text, "the kernel did not execute the program") {
			t.Errorf("%s: %q", name, text)
		}
	}
	q := a.enter("e", nil, nil, "true")
	q.ends(t, 0)
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
	_, err := a.tryEnter("late", nil, nil, "true")
	expectCode(t, "enter of a stopped app", abi.ExitFailedPrecondition, err)
	p.expect(0, abi.AppRm, "web")
	_, err = a.tryEnter("late", nil, nil, "true")
	expectCode(t, "enter of no app", abi.ExitNotFound, err)
}

// If the pod's path is long, the path of the console socket is relative to the pod's
// directory, and the runtime has another working directory.
func TestTerminalsOfAppsAndExecs(t *testing.T) {
	for name, below := range map[string]string{"": "", "at the end of a long path": strings.Repeat("long/", 20)} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, below)
			p.run()
			const script = "readlink /proc/self/fd/0; stat -c done / 2>/dev/null; read x; echo got $x; exit 3"
			a := p.app("web", func(s *specs.Spec) {
				s.Process.Terminal = true
				s.Process.ConsoleSize = &specs.Box{Width: 99, Height: 33}
			}, "sh", "-c", script).start()
			if size, err := unix.IoctlGetWinsize(int(a.Console.Fd()), unix.TIOCGWINSZ); err != nil || size.Col != 99 || size.Row != 33 {
				t.Errorf("size %+v, %v", size, err)
			}
			exec := a.enter("e", func(s *specs.Process) { s.Terminal = true }, nil, "sh", "-c", script)
			converse(t, exec, "/dev/pts/1")
			exec.ends(t, 3)
			converse(t, a.process, "/dev/pts/0")
			a.ends(t, 3)
		})
	}
}

// converse writes and reads at a terminal like a person.
func converse(t *testing.T, q *process, tty string) {
	t.Helper()
	if q.Console == nil {
		t.Fatal("no master came")
	}
	t.Cleanup(func() { q.Console.Close() }) // not before the end: it would hang up
	_, err := q.Console.WriteString("this\n")
	must(t, err)
	seen := ""
	lines := bufio.NewReader(q.Console)
	for !strings.Contains(seen, "got this\r\n") {
		line, err := lines.ReadString('\n')
		if seen += line; err != nil {
			t.Fatalf("the terminal shows %q: %v", seen, err)
		}
	}
	if !strings.Contains(seen, tty+"\r\n") {
		t.Errorf("the terminal shows %q, want %s in it", seen, tty)
	}
}
