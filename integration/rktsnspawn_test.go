package integration

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// nspawns are rkt's images that use systemd-nspawn. coreos differs from src only in its name.
var nspawns = []string{"host", "src", "coreos"}

func TestRktsNspawnRunsAContainer(t *testing.T) { // section 18: outputs that are one, quotes and %
	ofRkt(t, nspawns, func(t *testing.T, n *node) {
		r := n.run(t, []string{"--rm", "--cwd", "/tmp", "--env", `A=b  'c' "d" \e %h $f #g`}, n.id(), "sh", "-c", `pwd; echo "$A"; echo bad >&2; printf '100%% %s\n' of "it"; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb  'c' \"d\" \\e %h $f #g\n100% of\n100% it\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		n.run(t, []string{"--rm", "--user", "1000:1001"}, n.id(), "sh", "-c", "id -u; id -g; echo again >/dev/stdout").must(t).mustSay(t, "1000\n1001\nagain\n")
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "exit 9").mustExit(t, 9)
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "kill -TERM $$").mustExit(t, 128+int(syscall.SIGTERM))
		n.refusesMissingPrograms(t)
		t.Run("unsaid", func(t *testing.T) { n.refusesByName(t, strange) })
	})
}

func TestRktsNspawnServesEveryCall(t *testing.T) {
	ofRkt(t, nspawns, func(t *testing.T, n *node) {
		n.servesEveryCall(t)
		t.Run("death of run", n.endsWithItsPod)
		t.Run("death of the shim", n.survivesItsShim)
	})
}

func TestAPodOfRktsNspawnHasManyContainers(t *testing.T) { // sections 5, 12
	ofRkt(t, nspawns, func(t *testing.T, n *node) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		first, second, third := n.id(), n.id(), n.id()
		group := "io.containerd.rkt.v1.group=" + first
		n.run(t, []string{"-d", "--annotation", group}, first, "sleep", "1000").must(t)
		n.expectV1InThePod(t, first)
		n.run(t, []string{"--rm", "--annotation", group, "--mount", "type=bind,src=" + dir + ",dst=/vol/ume,options=rbind:ro",
			"--mount", "type=tmpfs,src=tmpfs,dst=/small,options=size=64k"}, second, "sh", "-c",
			"cat /vol/ume/f; touch /vol/ume/g 2>/dev/null && echo writable; df -k /small | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2; exit 7").
			mustExit(t, 7).mustSay(t, "volume\n64\n")
		// A failed app does not end the pod, and other apps can still be added.
		n.run(t, []string{"--rm", "--annotation", group}, third, "echo", "third").must(t).mustSay(t, "third\n")
		n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e", "--cwd", "/tmp", "--user", "1000:1001", first, "sh", "-c", "pwd; id -u; id -g").
			must(t).mustSay(t, "/tmp\n1000\n1001\n")
		n.ends(first)
	})
}

func TestStreamsOfRktsNspawn(t *testing.T) {
	ofRkt(t, nspawns, func(t *testing.T, n *node) {
		var lines strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&lines, "line %d\n", i)
		}
		r := n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done").must(t)
		if r.stdout != lines.String() {
			t.Errorf("of %d bytes of output arrived %d", lines.Len(), len(r.stdout))
		}
		const size = 1<<20 + 17
		n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
	})
}

func TestATerminalOfRktsNspawn(t *testing.T) {
	ofRkt(t, nspawns, func(t *testing.T, n *node) { n.hasTerminals(t) })
}

// expectV1InThePod checks which cgroup hierarchies systemd in a pod has. If the machine has
// version 2 beside version 1, the pod must not have it.
func (n *node) expectV1InThePod(t *testing.T, id string) {
	t.Helper()
	if unified() {
		return
	}
	dir, _ := n.pod(t, id)
	nspawn := strings.TrimSpace(read(t, filepath.Join(dir, "ppid")))
	systemd := strings.TrimSpace(read(t, filepath.Join("/proc", nspawn, "task", nspawn, "children")))
	mounts := read(t, filepath.Join("/proc", systemd, "mountinfo"))
	if !strings.Contains(mounts, " - cgroup ") || strings.Contains(mounts, " - cgroup2 ") {
		t.Errorf("mounts of the pod's systemd:\n%s", mounts)
	}
}

// The systemd in the pod does not end with systemd-nspawn.
func TestNothingOfAPodOfRktsNspawnOutlivesItsSupervisor(t *testing.T) { // section 7
	ofRkt(t, []string{"host"}, func(t *testing.T, n *node) {
		id := n.id()
		n.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
		dir, _ := n.pod(t, id)
		var nspawn, systemd int
		_, err := fmt.Sscan(read(t, filepath.Join(dir, "ppid")), &nspawn)
		must(t, err)
		_, err = fmt.Sscan(read(t, fmt.Sprintf("/proc/%d/task/%d/children", nspawn, nspawn)), &systemd)
		must(t, err)
		for _, pid := range []int{n.shim(t, id), nspawn} {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		n.shimCollected(t, id)
		wait.Observe(t, "the systemd of the pod has ended", func() (bool, string) { return !alive(systemd), "" })
	})
}
