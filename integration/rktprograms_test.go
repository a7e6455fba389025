package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// rktPrograms are the entrypoints of images of rkt's, and the files that the tests' images read in them.
var rktPrograms = []string{"gc", "enter", "stop", "app_add", "app_start", "app_stop", "app_rm", "attach", "mutable_enter", "lib.sh", "mutable.sh"}

// An app that is root in the isolating container of an image of rkt's can leave its chroot, and write to the pod's tree.
func TestNoProgramThatAnAppOfRktsHasWrittenIsExecuted(t *testing.T) {
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		n.executesNothingOfAnApp(t)
		for _, program := range []string{"enter", "gc"} {
			if !slices.ContainsFunc(n.calls(t), func(l string) bool { return strings.HasPrefix(strings.TrimPrefix(l, "mutable_"), program+" ") }) {
				t.Errorf("the image's %s was not called:\n%s", program, strings.Join(n.calls(t), "\n"))
			}
		}
		n.expectNothingLeft(t)
	})
}

func TestNoProgramThatAnAppOfRktsOwnImagesHasWrittenIsExecuted(t *testing.T) {
	ofRkt(t, append([]string{"fly"}, nspawns...), func(t *testing.T, n *node) { n.executesNothingOfAnApp(t) })
}

// rkt's app/add writes units into the pod's tree by their paths, from the host.
func TestNoLinkOfAnAppLeadsRktsProgramsToTheHost(t *testing.T) {
	ofRkt(t, []string{"host"}, func(t *testing.T, n *node) {
		hosts, first := t.TempDir(), n.id()
		group := "io.containerd.rkt.v1.group=" + first
		n.run(t, []string{"-d", "--annotation", group}, first, "sleep", "1000").must(t)
		n.inTree(t, first, `cd usr/lib/systemd; cp -a system "$1"; mv system old; ln -s "$1/system" system`, hosts)
		before, err := os.Stat(filepath.Join(hosts, "system"))
		must(t, err)
		if r := n.run(t, []string{"--rm", "--annotation", group}, n.id(), "true"); r.code == 0 {
			t.Error("the app was added")
		}
		// app/rm may have removed what app/add has made.
		if after, err := os.Stat(filepath.Join(hosts, "system")); err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("rkt's programs have written to a directory of the host: %v", err)
		}
		n.ends(first)
	})
}

// executesNothingOfAnApp replaces all programs in the tree of a pod, and makes every call that is left.
func (n *node) executesNothingOfAnApp(t *testing.T) {
	t.Helper()
	marks := t.TempDir()
	const script = `for f in "$@"; do rm -f "$f"; printf '#!/bin/sh\n: >"%s/%s"\n' "$MARKS" "$f" >"$f"; chmod 755 "$f"; done`
	replace := func(id string) { n.inTree(t, id, "MARKS="+marks+"; "+script, rktPrograms...) }
	first, second := n.id(), n.id()
	for _, id := range []string{first, second} {
		n.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
		replace(id)
	}
	n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e", first, "echo", "inside").must(t).mustSay(t, "inside\n")
	n.ends(first)
	must(t, syscall.Kill(n.shim(t, second), syscall.SIGKILL))
	n.shimCollected(t, second)
	left, err := os.ReadDir(marks)
	must(t, err)
	for _, e := range left {
		t.Errorf("the app's %s was executed", e.Name())
	}
}

// inTree executes a script in the tree of a container's pod, as an app that has left its chroot could.
func (n *node) inTree(t *testing.T, id, script string, args ...string) {
	t.Helper()
	dir, _ := n.pod(t, id)
	text, err := os.ReadFile(filepath.Join(dir, "ppid"))
	if os.IsNotExist(err) {
		text, err = os.ReadFile(filepath.Join(dir, "pid"))
	}
	must(t, err)
	c := exec.Command("nsenter", append([]string{
		"--mount=/proc/" + strings.TrimSpace(string(text)) + "/ns/mnt", "sh", "-ec", `cd "$0"; ` + script, filepath.Join(dir, "stage1/rootfs"),
	}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("write to the tree: %v: %s", err, out)
	}
}
