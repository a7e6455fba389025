package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// eachFly runs a case with the image fly as it is shipped, and as an image of rkt's last
// version. Its entrypoints serve both versions.
func eachFly(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	aside(t, func(t *testing.T, c *column) {
		for _, version := range []int{7, 6} {
			t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
				n := c.asideNode(t)
				name, path := "fly", filepath.Join(suite.shims, "stage1/fly")
				if version == 6 {
					name, path = "flysix", flyOfTheRktABI(t, path)
				}
				link := filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1")
				if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
				n.runtime = "io.containerd.rkt-" + name + ".v1"
				n.says("[stage1.%s]\npath = %q\naccept = [\"appc\", \"/process/capabilities\", \"/linux/seccomp\"]\n", name, path)
				test(t, n)
				n.expectNothingLeft(t)
			})
		}
	})
}

// flyOfTheRktABI copies the image and changes the version in its manifest to 6.
func flyOfTheRktABI(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fly")
	if err := os.CopyFS(dir, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest"), strings.Replace(read(t, filepath.Join(path, "manifest")), `"value": "7"`, `"value": "6"`, 1))
	return dir
}

func TestFlyRunsAContainer(t *testing.T) {
	eachFly(t, func(t *testing.T, n *node) {
		r := n.run(t, []string{"--rm", "--cwd", "/tmp", "--env", "A=b c"}, n.id(), "sh", "-c", `pwd; echo "$A"; echo bad >&2; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb c\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		const size = 1<<20 + 17
		n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		n.run(t, []string{"--rm", "--user", "1000:1001"}, n.id(), "sh", "-c", "id -u; id -g").must(t).mustSay(t, "1000\n1001\n")
		// The container's process is not process 1 of a PID namespace, so this signal kills it.
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "kill -TERM $$").mustExit(t, 128+int(syscall.SIGTERM))
		n.refusesMissingPrograms(t)
	})
}

func TestFlyMountsVolumesAndLeavesTheHostsTreesAlone(t *testing.T) { // trap 9
	eachFly(t, func(t *testing.T, n *node) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		before := read(t, "/proc/self/mountinfo")
		id := n.id()
		n.run(t, []string{"-d", "--mount", "type=bind,src=" + dir + ",dst=/vol/ume,options=rbind:ro"}, id, "sleep", "1000").must(t)
		after := read(t, "/proc/self/mountinfo")
		for line := range strings.Lines(after) {
			if strings.Contains(line, n.daemon.Dir()) && strings.Contains(line, "/stage2/") {
				t.Errorf("a mount of the pod is where containerd is: %s", line)
			}
		}
		if strings.Count(after, " /dev ") != strings.Count(before, " /dev ") {
			t.Errorf("the machine's /dev is mounted once more:\n%s", after)
		}
		n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e", id, "sh", "-c",
			"cat /vol/ume/f; touch /vol/ume/g 2>/dev/null && echo writable; test -c /dev/null && test -d /proc/self && test -d /sys/fs && echo seen").
			must(t).mustSay(t, "volume\nseen\n")
		n.ends(id)
		if st, err := os.Stat("/dev/null"); err != nil || st.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("/dev/null of the host: %v, %v", st, err)
		}
	})
}

func TestFlyExecutesWithWhatTheExecAsksFor(t *testing.T) {
	eachFly(t, func(t *testing.T, n *node) {
		id := n.id()
		n.run(t, []string{"-d", "--env", "A=b"}, id, "sleep", "1000").must(t)
		exec := func(flags ...string) result {
			return n.ctr(t, append(append([]string{"task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", n.id()}, flags...), id, "sh", "-c", `pwd; id -u; echo "$A"; exit 7`)...)
		}
		exec().mustExit(t, 7).mustSay(t, "/\n0\nb\n")
		if r := exec("--cwd", "/tmp", "--user", "1000"); strings.Contains(n.runtime, "flysix") {
			if r.code == 0 || !strings.Contains(r.stderr, "/process/user") {
				t.Errorf("version 6 cannot be told a user: exit code %d, %s", r.code, r.stderr)
			}
		} else {
			r.mustExit(t, 7).mustSay(t, "/tmp\n1000\nb\n")
		}
		n.ends(id)
	})
}

func TestFlyHasTerminals(t *testing.T) {
	eachFly(t, func(t *testing.T, n *node) { n.hasTerminals(t) })
}

func TestFlyHasToBeExcusedWhatItDoesNotIsolate(t *testing.T) {
	eachFly(t, func(t *testing.T, n *node) {
		text := read(t, n.file)
		write(t, n.file, text[:strings.Index(text, "accept")])
		r := n.run(t, []string{"--rm"}, n.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, "config.json asks for /") || !strings.Contains(r.stderr, "fly") {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
	})
}
