package integration

import (
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"testing"
)

func TestRktsFlyRunsAContainer(t *testing.T) {
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) {
		r := n.run(t, []string{"--rm", "--cwd", "/tmp", "--env", "A=b c"}, n.id(), "sh", "-c", `pwd; echo "$A"; echo bad >&2; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb c\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		const size = 1<<20 + 17
		n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		n.run(t, []string{"--rm", "--user", "1000:1001"}, n.id(), "sh", "-c", "id -u; id -g").must(t).mustSay(t, "1000\n1001\n")
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "kill -TERM $$").mustExit(t, 128+int(syscall.SIGTERM))
		n.refusesMissingPrograms(t)
		t.Run("unsaid", func(t *testing.T) { n.refusesByName(t, strange) })
	})
}

func TestRktsFlyServesEveryCall(t *testing.T) {
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) {
		n.servesEveryCall(t)
		t.Run("death of run", n.endsWithItsPod)
		t.Run("death of the shim", n.survivesItsShim)
	})
}

func TestRktsFlyLeavesTheHostsTreesAlone(t *testing.T) { // trap 9
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		before := hostsTrees(t)
		id := n.id()
		n.run(t, []string{"-d", "--mount", "type=bind,src=" + dir + ",dst=/vol/ume,options=rbind:ro",
			"--mount", "type=tmpfs,src=tmpfs,dst=/small,options=size=64k:noexec"}, id, "sleep", "1000").must(t)
		before.expect(t)
		n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e", id, "sh", "-c",
			"cat /vol/ume/f; touch /vol/ume/g 2>/dev/null && echo writable; df -k /small | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2; test -c /dev/null && test -d /proc/self && test -d /sys/fs && echo seen").
			must(t).mustSay(t, "volume\n64\nseen\n")
		n.ends(id)
	})
}

func TestATerminalOfRktsFly(t *testing.T) {
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) { n.hasTerminals(t) })
}

func TestAPodOfRktsFlyHasOneContainer(t *testing.T) { // section 14
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) { n.refusesASecondContainer(t) })
}
