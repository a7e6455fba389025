package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// eachByTheRktABI runs a case with bundled images whose manifest has rkt's last interface
// version and no app/add. Their entrypoints serve both ABIs.
func eachByTheRktABI(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	aside(t, func(t *testing.T, c *column) {
		n := c.asideNode(t)
		config := ""
		images := []string{"native", "nspawn", "oci"}
		for _, image := range images {
			link := filepath.Join(suite.shims, "containerd-shim-rkt-"+image+"six-v1")
			if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			config += fmt.Sprintf("[stage1.%ssix]\npath = %q\naccept = [\"appc\"]\n", image, ofTheRktABI(t, filepath.Join(suite.shims, "stage1", image)))
		}
		n.says("%s", config)
		for _, image := range images {
			t.Run(image, func(t *testing.T) {
				if _, err := exec.LookPath("systemd-nspawn"); image == "nspawn" && err != nil {
					t.Skip("needs systemd-nspawn")
				}
				n.runtime = "io.containerd.rkt-" + image + "six.v1"
				test(t, n)
				n.expectNothingLeft(t)
			})
		}
	})
}

// ofTheRktABI copies an image and changes its manifest.
func ofTheRktABI(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	if err := os.CopyFS(dir, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	var manifest map[string]any
	if err := json.Unmarshal([]byte(read(t, filepath.Join(path, "manifest"))), &manifest); err != nil {
		t.Fatal(err)
	}
	var kept []any
	for _, a := range manifest["annotations"].([]any) {
		pair := a.(map[string]any)
		switch name := strings.TrimPrefix(pair["name"].(string), "coreos.com/rkt/stage1/"); {
		case name == "interface-version":
			pair["value"] = "6"
		case strings.HasPrefix(name, "app/") || name == "features":
			continue
		}
		kept = append(kept, pair)
	}
	manifest["annotations"] = kept
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest"), string(text))
	return dir
}

func TestBundledImagesRunContainersByTheRktABI(t *testing.T) {
	eachByTheRktABI(t, func(t *testing.T, n *node) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		r := n.run(t, []string{"--rm", "--cwd", "/tmp", "--env", "A=b c", "--user", "1000:1001", "--mount", "type=bind,src=" + dir + ",dst=/vol,options=rbind:ro"}, n.id(),
			"sh", "-c", `pwd; echo "$A"; id -u; id -g; cat /vol/f; echo bad >&2; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb c\n1000\n1001\nvolume\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		id := n.id()
		n.run(t, []string{"-d", "--null-io", "--env", "A=b"}, id, "testprog", "sleep", "1000").must(t)
		host, err := os.Readlink("/proc/self/ns/pid")
		if err != nil {
			t.Fatal(err)
		}
		r = n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e", id, "sh", "-c", `echo "$A"; readlink /proc/self/ns/pid; exit 7`).mustExit(t, 7)
		if !strings.HasPrefix(r.stdout, "b\npid:[") || strings.Contains(r.stdout, host) {
			t.Errorf("the exec says %q, and the host's PID namespace is %s", r.stdout, host)
		}
		n.ends(id)
	})
}

func TestBundledImagesHaveTerminalsByTheRktABI(t *testing.T) {
	eachByTheRktABI(t, func(t *testing.T, n *node) {
		n.hasTerminals(t)
		// The shell has job control only if the terminal is its controlling one.
		term := newTerminal(t, 33, 99)
		id := n.id()
		const script = "trap 'echo interrupted; exit 42' INT; until testprog winsize | grep '[1-9]'; do sleep 0.1; done; echo controlled >/dev/tty; read line; echo got $line; while :; do sleep 0.1; done"
		ended := n.atTerminal(t, term, n.runArgs([]string{"--rm", "-t"}, id, "sh", "-c", script)...)
		term.await(t, "33 99\ncontrolled\n")
		term.enter(t, "some words\r")
		term.await(t, "got some words\n")
		other := newTerminal(t, 40, 100)
		exec := n.atTerminal(t, other, "task", "exec", "--exec-id", "e", "--fifo-dir", n.fifoDir(nil), "-t", id, "sh", "-c", script)
		other.await(t, "40 100\ncontrolled\n")
		other.enter(t, "more\r")
		other.await(t, "got more\n")
		for _, end := range []struct {
			term *terminal
			wait func() int
		}{{other, exec}, {term, ended}} {
			end.term.enter(t, "\x03")
			end.term.await(t, "interrupted\n")
			if code := end.wait(); code != 42 {
				t.Errorf("exit code %d", code)
			}
		}
	})
}
