package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

func TestAnImmutableImageOfRktsRunsAContainer(t *testing.T) {
	eachRkt(t, everyVersion, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm"}, n.id(), "echo", "an argument", "'quoted' \"$HOME\"").must(t).mustSay(t, "an argument 'quoted' \"$HOME\"\n")
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "exit 42").mustExit(t, 42)
		n.expectNothingLeft(t)
	})
}

func TestRunGetsTheArgumentsOfItsVersionAndNoOthers(t *testing.T) { // traps 2; section 1, 4.1
	eachRkt(t, everyVersion, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm", "--env", "A=b"}, n.id(), "true").must(t)
		n.run(t, []string{"--rm", "--privileged"}, n.id(), "true").must(t)
		n.expectNothingLeft(t)
		lines := n.said(t, "run ")
		if len(lines) != 2 {
			t.Fatalf("run was called %d times:\n%s", len(lines), strings.Join(n.calls(t), "\n"))
		}
		uuid := "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
		want := []string{"^(--debug )?--net=host (--interactive )?" + uuid, "^(--debug )?--net=host (--interactive )?" + uuid}
		if n.fixture.version >= 3 {
			want[1] = "^(--debug )?--net=host (--interactive )?--disable-capabilities-restriction --disable-paths " + uuid
		}
		for i, l := range lines {
			if !regexp.MustCompile(want[i]).MatchString(l) {
				t.Errorf("run was called with %q, want %s", l, want[i])
			}
		}
		for _, l := range n.said(t, "gc ") {
			if !regexp.MustCompile("^(--debug )?" + uuid).MatchString(l) {
				t.Errorf("gc was called with %q", l)
			}
		}
		var names []string
		for _, l := range n.said(t, "run: ") {
			name, _, _ := strings.Cut(l, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		if got, want := slices.Compact(names), []string{"PATH", "RKT_LOCK_FD", "RKT_SELINUX_CONTEXT", "RKT_SELINUX_MOUNT_CONTEXT"}; !slices.Equal(got, want) {
			t.Errorf("environment of run: %v, want %v", got, want)
		}
	})
}

func TestThePodManifestSaysWhatTheSpecAsksFor(t *testing.T) { // trap 6, 12; checklist 7, 8; section 10
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		n.run(t, []string{"--rm", "--cwd", "/tmp", "--user", "1000:1001", "--env", "A=a b'c\"$d", "--read-only=false",
			"--mount", "type=bind,src=" + dir + ",dst=/vol/ume,options=rbind:ro", "--memory-limit", "67108864", "--cap-add", "CAP_SYS_TIME"},
			n.id(), "sh", "-c", `cat /vol/ume/f; touch /vol/ume/g 2>/dev/null && echo writable; pwd; id -u; id -g; echo "$A"`).
			must(t).mustSay(t, "volume\n/tmp\n1000\n1001\na b'c\"$d\n")
		m := n.podManifest(t)
		if len(m.Apps) != 1 {
			t.Fatalf("apps of the manifest: %v", m.Apps)
		}
		app := m.Apps[0].App
		if app.User != "1000" || app.Group != "1001" || app.WorkingDirectory != "/tmp" {
			t.Errorf("user %q, group %q, directory %q", app.User, app.Group, app.WorkingDirectory)
		}
		for name, want := range map[string]string{
			"os/linux/seccomp-retain-set":      "@appc.io/all",
			"os/linux/capabilities-retain-set": "CAP_SYS_TIME",
			"os/linux/no-new-privileges":       "true",
			"resource/memory":                  "67108864",
		} {
			if got := m.isolator(name); !strings.Contains(got, want) {
				t.Errorf("isolator %s: %s, want %s", name, got, want)
			}
		}
		env := read(t, filepath.Join(n.fixture.log, "env"))
		for _, want := range []string{"A=a b'c\"$d\n", "PATH=", "HOME=", "AC_APP_NAME=" + m.Apps[0].Name + "\n"} {
			if !strings.Contains(env, want) {
				t.Errorf("rkt/env has no %q:\n%s", want, env)
			}
		}
	})
}

func TestWhatAppcCannotSayIsRefusedByName(t *testing.T) { // section 10: no representation
	eachRkt(t, []int{4}, func(t *testing.T, n *rktNode) {
		dir := t.TempDir()
		for field, flags := range map[string][]string{
			"/linux/seccomp/syscalls": {"--seccomp"},
			"/process/rlimits":        {"--rm"},
		} {
			accept := `["appc"]`
			if field == "/process/rlimits" {
				accept = `[]`
			}
			n.says("[stage1.%s]\npath = %q\naccept = %s\n", n.fixture.name(), n.dir, accept)
			r := n.run(t, flags, n.id(), "true")
			if r.code == 0 || !strings.Contains(r.stderr, "/") {
				t.Errorf("%s: exit %d, %s", field, r.code, r.stderr)
			}
			if field == "/linux/seccomp/syscalls" && !strings.Contains(r.stderr, field) {
				t.Errorf("%s is not in: %s", field, r.stderr)
			}
			_ = dir
		}
		n.says("[stage1.%s]\npath = %q\naccept = [\"appc\", \"/linux/seccomp\"]\n", n.fixture.name(), n.dir)
		n.run(t, []string{"--rm", "--seccomp"}, n.id(), "true").must(t)
		n.expectNothingLeft(t)
	})
}

func TestStreamsOfAnImmutableImage(t *testing.T) {
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		r := n.run(t, []string{"--rm"}, n.id(), "testprog", "both", "to stdout", "to stderr").must(t)
		r.mustSay(t, "to stdout\n")
		if r.stderr != "to stderr\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		const size = 1<<20 + 17
		n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		n.expectNothingLeft(t)
	})
}

func TestAProgramThatIsNotThereFailsCreate(t *testing.T) { // trap 5
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		for program, words := range map[string]string{
			"nosuchprogram": "executable file not found in $PATH", "/no/such": "no such file or directory",
			"/etc/passwd": "permission denied", "/bin": "is a directory",
		} {
			r := n.run(t, []string{"--rm"}, n.id(), program)
			if r.code == 0 || !strings.Contains(r.stderr, words) {
				t.Errorf("%s: exit code %d, %s; want %q", program, r.code, r.stderr, words)
			}
		}
		n.expectNothingLeft(t)
	})
}

func TestAnExitIsToldFromASignal(t *testing.T) { // trap 3
	eachRkt(t, everyVersion, func(t *testing.T, n *rktNode) {
		for _, sig := range []string{"SIGKILL", "SIGTERM"} {
			id := n.id()
			n.run(t, []string{"-d"}, id, "testprog", "sleep", "1000").must(t)
			n.ctr(t, "task", "kill", "--signal", sig, id).must(t)
			want := 128 + int(map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM}[sig])
			r := n.ctr(t, "task", "delete", id)
			eventually(t, "the task is deleted", func() (bool, string) {
				if r.code != 0 && strings.Contains(r.stderr, "must be stopped") {
					r = n.ctr(t, "task", "delete", id)
					return false, r.stderr
				}
				return true, ""
			})
			if r.code != want && !strings.Contains(r.stderr+r.stdout, fmt.Sprint(want)) {
				t.Errorf("%s: exit code %d, want %d: %s", sig, r.code, want, r.stderr)
			}
			n.ctr(t, "container", "delete", id).must(t)
		}
		for _, code := range []int{9, 15, 31, 127, 255} {
			if n.fixture.version > 2 && code > 128 {
				continue // the status file of the fixture, as that of rkt, holds one byte
			}
			n.run(t, []string{"--rm"}, n.id(), "testprog", "exit", fmt.Sprint(code)).mustExit(t, code)
		}
		n.expectNothingLeft(t)
	})
}

func TestAnExecInAnImmutableImage(t *testing.T) { // checklist 11
	eachRkt(t, everyVersion, func(t *testing.T, n *rktNode) {
		id := n.id()
		n.run(t, []string{"-d", "--env", "A=of the container"}, id, "testprog", "sleep", "1000").must(t)
		n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e1", id, "sh", "-c", `echo "$A"; exit 7`).mustExit(t, 7).mustSay(t, "of the container\n")
		for _, l := range n.said(t, "enter ") {
			if !regexp.MustCompile(`^--pid=[0-9]+ --appname=[a-z0-9-]+ -- sh -c`).MatchString(l) {
				t.Errorf("enter was called with %q", l)
			}
		}
		r := n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e2", "--cwd", "/tmp", id, "pwd")
		if r.code == 0 || !strings.Contains(r.stderr, "/process/cwd") {
			t.Errorf("an exec in another directory: exit code %d, %s", r.code, r.stderr)
		}
		if r := n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e3", id, "nosuchprogram"); !strings.Contains(r.stderr, "executable file not found in $PATH") {
			t.Errorf("an exec of nothing: exit code %d, %s", r.code, r.stderr)
		}
		n.ends(id)
		n.expectNothingLeft(t)
	})
}

func TestATerminalOfAnImmutableImage(t *testing.T) {
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		container := n.containerOf(t, n.client, n.column.image(t, n.client), n.runtime, n.id(), []string{"sh", "-c", "test -t 1 && stty size"}, oci.WithTTY, oci.WithTTYSize(97, 31))
		ctx := n.context(t)
		var out bytes.Buffer
		task, err := container.NewTask(ctx, cio.NewCreator(cio.WithStreams(nil, &out, nil), cio.WithTerminal, cio.WithFIFODir(n.fifoDir(nil))))
		if err != nil {
			t.Fatal(err)
		}
		exit, err := task.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		st := <-exit
		if _, err := task.Delete(ctx); err != nil {
			t.Error(err)
		}
		if err := container.Delete(ctx); err != nil {
			t.Error(err)
		}
		if st.ExitCode() != 0 || !strings.Contains(out.String(), "31 97") {
			t.Errorf("exit code %d, output %q; want a terminal of 31 lines and 97 columns", st.ExitCode(), out.String())
		}
		n.expectNothingLeft(t)
	})
}

func TestAnImmutablePodHasOneContainer(t *testing.T) { // section 14; checklist 6
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		first, second := n.id(), n.id()
		group := "io.containerd.rkt.v1.group=" + first
		n.run(t, []string{"-d", "--annotation", group}, first, "sleep", "1000").must(t)
		r := n.run(t, []string{"--rm", "--annotation", group}, second, "true")
		if r.code == 0 || !strings.Contains(r.stderr, "immutable") {
			t.Errorf("a second container: exit code %d, %s", r.code, r.stderr)
		}
		n.ends(first)
		n.expectNothingLeft(t)
	})
}

func TestNothingOfAnImmutablePodOutlivesItsShim(t *testing.T) { // trap 9; checklist 14
	eachRkt(t, someVersions(t), func(t *testing.T, n *rktNode) {
		id := n.id()
		n.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
		dir, _ := n.pod(t, id)
		if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, dir) {
			t.Errorf("something is mounted below %s where containerd is", dir)
		}
		pid := n.shim(t, id)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task is gone", func() (bool, string) {
			r := n.ctr(t, "task", "ls")
			return !strings.Contains(r.stdout, id+" ") || strings.Contains(r.stdout, "STOPPED"), r.stdout
		})
		n.ctr(t, "task", "delete", "--force", id)
		n.ctr(t, "container", "delete", id).must(t)
		n.expectNothingLeft(t)
		if _, err := os.Stat("/dev/null"); err != nil {
			t.Error(err)
		}
	})
}
