package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func TestAMutableImageOfRktsRunsAContainer(t *testing.T) { // checklist 3, 4, 5, 7, 9, 12, 13
	eachMutable(t, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm"}, n.id(), "echo", "an argument", "'quoted' \"$HOME\"").must(t).mustSay(t, "an argument 'quoted' \"$HOME\"\n")
		r := n.run(t, []string{"--rm", "--cwd", "/tmp", "--env", "A=b c"}, n.id(), "sh", "-c", `pwd; echo "$A"; echo bad >&2; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb c\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		n.expectNothingLeft(t)
	})
}

// inGroup returns the flags of a container in the pod of another one.
func inGroup(first string, flags ...string) []string {
	return append(flags, "--annotation", "io.containerd.rkt.v1.group="+first)
}

func TestAppsComeAndGoInAPodOfRkts(t *testing.T) { // traps 1, 2, 8; checklist 2, 7, 9, 13; section 4.3
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first := n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		for i := range 3 {
			n.run(t, inGroup(first, "--rm"), n.id(), "sh", "-c", fmt.Sprintf("echo %d; exit %d", i, 9+i)).mustExit(t, 9+i).mustSay(t, fmt.Sprintln(i))
		}
		n.exec(t, nil, first, "echo", "still here").must(t).mustSay(t, "still here\n")
		n.ends(first)
		n.expectNothingLeft(t)

		if runs := n.said(t, "mutable_run "); len(runs) != 1 || !strings.Contains(runs[0], " --mutable ") {
			t.Errorf("run was called so: %q", runs)
		}
		for _, l := range n.said(t, "app_add ") {
			if !regexp.MustCompile(`^--debug=(true|false) --uuid=[0-9a-f-]{36} --app=[a-z0-9-]+$`).MatchString(l) {
				t.Errorf("app/add was called with %q", l)
			}
		}
		for _, e := range []string{"app_add", "app_start", "app_stop", "app_rm"} {
			var names []string
			for _, l := range n.said(t, e+": ") {
				name, _, _ := strings.Cut(l, "=")
				names = append(names, name)
			}
			slices.Sort(names)
			if got, want := slices.Compact(names), []string{"PATH", "RKT_STAGE1_ENTERCMD", "RKT_STAGE1_ENTERPID"}; !slices.Equal(got, want) {
				t.Errorf("environment of %s: %v, want %v", e, got, want)
			}
		}
		// Each removed app had app/stop and then app/rm. The last app was removed with the pod.
		var order []string
		for _, l := range n.calls(t) {
			if name, app, ok := strings.Cut(l, " --debug=true --app="); ok && (name == "app_stop" || name == "app_rm") {
				order = append(order, name+" "+app)
			}
		}
		if len(order) != 6 {
			t.Fatalf("apps were removed so: %q", order)
		}
		for i := 0; i < len(order); i += 2 {
			app, ok := strings.CutPrefix(order[i], "app_stop ")
			if !ok || order[i+1] != "app_rm "+app {
				t.Errorf("apps were removed so: %q", order)
			}
		}
	})
}

func TestAFailedAddIsRolledBack(t *testing.T) { // trap 7
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first := n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		dir, _ := n.pod(t, first)
		before := filesOf(t, dir)
		failed := n.id()
		r := n.run(t, inGroup(first, "--rm", "--env", "FIXTURE_FAILS=1"), failed, "true")
		if r.code == 0 || !strings.Contains(r.stderr, "it was asked to fail") {
			t.Errorf("an app/add that fails: exit code %d, %s", r.code, r.stderr)
		}
		if after := filesOf(t, dir); !slices.Equal(before, after) {
			t.Errorf("files of the pod before %q\n\tand after a failed app/add %q", before, after)
		}
		// The image reads every app of the manifest.
		n.run(t, inGroup(first, "--rm"), n.id(), "true").must(t)
		n.ends(first)
		n.expectNothingLeft(t)
	})
}

// filesOf lists the files of a pod's apps.
func filesOf(t *testing.T, pod string) (all []string) {
	t.Helper()
	for _, pattern := range []string{"appsinfo/*", "appsinfo/*/*", "stage1/rootfs/rkt/*/*", "stage1/rootfs/opt/stage2/*"} {
		found, err := filepath.Glob(filepath.Join(pod, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	var manifest any // the order of its members does not matter
	if err := json.Unmarshal([]byte(read(t, filepath.Join(pod, "pod"))), &manifest); err != nil {
		t.Fatal(err)
	}
	return append(all, fmt.Sprint(manifest))
}

func TestAProgramThatIsNotThereInAMutablePod(t *testing.T) { // trap 5
	eachMutable(t, func(t *testing.T, n *rktNode) {
		// Only the stage1 detects that, after app/start has succeeded.
		n.run(t, []string{"--rm", "--env", "FIXTURE_STATUS=203"}, n.id(), "true").mustExit(t, 127)
		r := n.run(t, []string{"--rm", "--env", "FIXTURE_START_FAILS=1"}, n.id(), "sleep", "4713")
		if r.code == 0 || !strings.Contains(r.stderr, "it was asked to fail") {
			t.Errorf("an app/start that fails: exit code %d, %s", r.code, r.stderr)
		}
		wait.Observe(t, "what it has left is killed", func() (bool, string) { return !running("sleep\x004713"), "" })
		n.expectNothingLeft(t)
	})
}

func TestSignalsOfAMutablePodGoToTheProgram(t *testing.T) { // traps 3, 4; checklist 9, 10
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first := n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		end := func(signal, code string, argv ...string) {
			t.Helper()
			id := n.id()
			n.run(t, inGroup(first, "-d"), id, argv...).must(t)
			n.ctr(t, "task", "kill", "--signal", signal, id).must(t)
			n.gone(t, id, code)
		}
		end("SIGKILL", "137", "testprog", "ignore-term")
		end("SIGTERM", "143", "sleep", "1000")
		end("SIGTERM", "33", "sh", "-c", `trap "exit 33" TERM; while :; do sleep 0.1; done`)
		end("SIGTERM", "15", "sh", "-c", `trap "exit 15" TERM; while :; do sleep 0.1; done`)
		for _, code := range []int{9, 15, 31} {
			n.run(t, inGroup(first, "--rm"), n.id(), "testprog", "exit", fmt.Sprint(code)).mustExit(t, code)
		}
		// A created app that was not started has no process yet.
		created := n.newContainer(t, first)
		n.ctr(t, "task", "kill", "--signal", "SIGKILL", created).must(t)
		n.gone(t, created, "137")
		if stops := n.said(t, "app_stop "); len(stops) != 8 {
			t.Errorf("app/stop was called %d times; it is no way to signal", len(stops))
		}
		n.ends(first)
		n.expectNothingLeft(t)
	})
}

// newContainer makes a container in the pod of another one, without starting it.
func (n *rktNode) newContainer(t *testing.T, first string) string {
	t.Helper()
	member := oci.WithAnnotations(map[string]string{"io.containerd.rkt.v1.group": first})
	container := n.containerOf(t, n.client, n.image(t, n.client), n.runtime, n.id(), []string{"sleep", "1000"}, member)
	return n.newTask(t, container, cio.NullIO).ID()
}

// gone waits until a task with an exit code can be deleted.
func (n *rktNode) gone(t *testing.T, id, code string) {
	t.Helper()
	wait.Observe(t, "the task is deleted", func() (bool, string) {
		r := n.ctr(t, "task", "delete", id)
		if r.code != 0 && strings.Contains(r.stderr, "must be stopped") {
			return false, r.stderr
		}
		if !strings.Contains(r.stderr, "non-zero exit code "+code+"\"") {
			t.Errorf("%s: want exit code %s: %d, %s", id, code, r.code, r.stderr)
		}
		return true, ""
	})
	n.ctr(t, "container", "delete", id).must(t)
}

func TestStreamsOfAMutableImage(t *testing.T) { // checklist 12; section 9
	eachMutable(t, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm"}, n.id(), "testprog", "both", "to stdout", "to stderr").must(t).mustSay(t, "to stdout\n")
		const size = 1<<20 + 17
		if r := n.run(t, []string{"--rm"}, n.id(), "testprog", "bytes", fmt.Sprint(size)).must(t); len(r.stdout) != size {
			t.Errorf("%d bytes of %d", len(r.stdout), size)
		}
		if n.fixture.version == 5 { // rkt's multiplexer cannot report the end of an input
			n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		} else {
			n.ctrWith(t, strings.NewReader("a line\n"), n.runArgs([]string{"--rm"}, n.id(), "sh", "-c", `read x; echo "<$x>"`)...).must(t).mustSay(t, "<a line>\n")
		}
		if attached := len(n.said(t, "attach ")); (attached > 0) != (n.fixture.version == 5) {
			t.Errorf("attach was called %d times: it is for an image that has no sockets", attached)
		}
		n.expectNothingLeft(t)
	})
}

func TestAnExecInAMutablePod(t *testing.T) { // checklist 11
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first, second := n.id(), n.id()
		n.run(t, inGroup(first, "-d", "--env", "A=of the first"), first, "sleep", "1000").must(t)
		n.run(t, inGroup(first, "-d", "--env", "A=of the second"), second, "sleep", "1000").must(t)
		for id, want := range map[string]string{first: "of the first\n", second: "of the second\n"} {
			n.exec(t, nil, id, "sh", "-c", `echo "$A"; exit 7`).mustExit(t, 7).mustSay(t, want)
		}
		for _, l := range n.said(t, "mutable_enter --pid=") {
			if !regexp.MustCompile(`^[0-9]+ (--appname=[a-z0-9-]+ -- sh -c|-- test -e)`).MatchString(l) {
				t.Errorf("enter was called with --pid=%s", l)
			}
		}
		n.ends(second)
		n.ends(first)
		n.expectNothingLeft(t)
	})
}

func TestAnAppIsInItsOwnCgroup(t *testing.T) { // checklist 9, 11
	eachMutable(t, func(t *testing.T, n *rktNode) {
		id := n.id()
		n.run(t, []string{"-d", "--memory-limit", "67108864"}, id, "sh", "-c", "sleep 4715 & sleep 4716").must(t)
		wait.Observe(t, "its processes are listed", func() (bool, string) {
			r := n.ctr(t, "task", "ps", id).must(t)
			return strings.Count(strings.TrimSpace(r.stdout), "\n") == 2, r.stdout // and a heading
		})
		n.ctr(t, "task", "pause", id).must(t)
		n.ctr(t, "task", "resume", id).must(t)
		if r := n.ctr(t, "task", "metrics", id).must(t); !strings.Contains(r.stdout, "memory.usage") {
			t.Errorf("metrics: %s", r.stdout)
		}
		n.ends(id)
		n.expectNothingLeft(t)
	})
}

func TestVolumesAreThereBeforeTheApp(t *testing.T) { // section 18; checklist 7, 8; trap 6
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first := n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		n.run(t, inGroup(first, "--rm", "--user", "1000:1001",
			"--mount", "type=bind,src="+dir+",dst=/vol/ume,options=rbind:ro",
			"--mount", "type=bind,src="+filepath.Join(dir, "f")+",dst=/etc/one,options=bind",
			"--mount", "type=tmpfs,src=tmpfs,dst=/scratch,options=mode=1777:size=1m:noexec"),
			n.id(), "sh", "-c", `cat /vol/ume/f /etc/one; touch /vol/ume/g 2>/dev/null && echo writable; touch /scratch/x; grep -c " /scratch tmpfs .*noexec" /proc/$$/mounts; id -u`).
			must(t).mustSay(t, "volume\nvolume\n1\n1000\n")
		if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, "/stage2/") {
			t.Error("something of an app is mounted where containerd is")
		}
		m := n.podManifest(t)
		if len(m.Apps) != 2 {
			t.Errorf("apps of the manifest: %v", m.Apps)
		}
		if got := m.isolator("os/linux/seccomp-retain-set"); !strings.Contains(got, "@appc.io/all") {
			t.Errorf("seccomp: %s", got)
		}
		n.ends(first)
		n.expectNothingLeft(t)
	})
}

func TestNothingOfAMutablePodOutlivesItsShim(t *testing.T) { // checklist 14
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first, second := n.id(), n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		n.run(t, inGroup(first, "-d"), second, "testprog", "ignore-term").must(t)
		if err := syscall.Kill(n.shim(t, first), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{first, second} {
			n.shimCollected(t, id)
		}
		n.expectNothingLeft(t)
	})
}

func TestTheEndOfAMutablePodIsThatOfItsApps(t *testing.T) { // checklist 9; trap 4
	eachMutable(t, func(t *testing.T, n *rktNode) {
		first, second := n.id(), n.id()
		n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
		n.run(t, inGroup(first, "-d"), second, "sleep", "1000").must(t)
		dir, _ := n.pod(t, first)
		var pid int
		if _, err := fmt.Sscan(read(t, filepath.Join(dir, "ppid")), &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.gone(t, second, "137")
		n.gone(t, first, "137")
		n.expectNothingLeft(t)
	})
}
