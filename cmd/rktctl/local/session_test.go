package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// rktctl returns the output of a command line and its exit code.
func (b *box) rktctl(args ...string) (out string, code int) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), filepath.Join(suite.bin, "rktctl"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RKT_DATA_DIR=" + b.DataDir}
	text, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		b.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// The sandbox's output is for scripts: the UUID and nothing else. rktctl exits with the code of a
// command that it has executed. The beginning of a UUID is enough.
func TestScriptsGetUUIDsAndExitCodes(t *testing.T) {
	b := newBox(t, "native")
	out, code := b.rktctl("app", "sandbox", "--cgroup-parent=/"+suite.cgroup)
	uuid, isLine := strings.CutSuffix(out, "\n")
	if _, err := b.Open(uuid); code != 0 || !isLine || err != nil || len(uuid) != 36 {
		t.Fatalf("%d, %q, %v", code, out, err)
	}
	for _, c := range []struct {
		args string
		code int
		out  string
	}{
		{"app add " + uuid[:8] + " --app=web --env=PATH=/bin " + suite.rootfs + " -- sleep 1000", 0, ""},
		{"app start " + uuid[:8] + " --app=web", 0, ""},
		{"app exec " + uuid[:8] + " --app=web -- sh -c exit_7", 7, ""},
		{"app exec " + uuid[:8] + " --app=web -- cat /nosuch", 1, "can't open"},
		{"app status " + uuid + " --app=web -o json", 0, `"exitCode": null`},
		{"app list " + uuid + " -o yaml", 0, "state: running"},
		{"app list -o json", 0, `"state": "running"`},
		{"app add " + uuid + " --app=web " + suite.rootfs + " -- true", 1, "already exists"},
		{"app add " + uuid + " --app=../x " + suite.rootfs + " -- true", 1, "is not the name of an app"},
		{"app add " + uuid + " --app=x " + suite.rootfs, 1, "names a program"},
		{"app add " + uuid + " --app=x /no/such/directory -- true", 1, "/no/such/directory"},
		{"app add " + uuid + " --app=x --volume=a:b " + suite.rootfs + " -- true", 2, "volume"},
		{"app start " + uuid, 2, "--app NAME"},
		{"app start 00000000 --app=web", 1, "no local pod"},
		{"app rm " + uuid, 2, "either"},
		{"stop " + uuid, 1, "rktctl app stop"},
		{"list", 0, uuid},
		{"app rm " + uuid + " --pod", 1, "is running"},
		{"app stop " + uuid + " --app=web --period=0s", 0, ""},
		{"app rm " + uuid + " --pod", 0, ""},
		{"run-prepared 00000000", 1, "no local pod"},
		{"run --cgroup-parent=/" + suite.cgroup + " " + suite.rootfs + " -- /bin/nosuch", 1, "nosuch"},
		{"run", 2, "no IMAGE"},
		{"app sandbox --network=nosuch", 1, "none, host, or a network"},
		{"app sandbox --stage1=nosuch --cgroup-parent=/" + suite.cgroup, 1, "nosuch"},
	} {
		args := strings.Split(c.args, " ")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		out, code := b.rktctl(args...)
		if code != c.code || !strings.Contains(out, c.out) || c.out == "" && out != "" {
			t.Errorf("%s: %d, %q; want %d, %q", c.args, code, out, c.code, c.out)
		}
	}
}

// The terminal of an exec has the size and the modes of the caller's.
func TestAnExecHasTheTerminalOfItsCaller(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("needs script, which makes a terminal for a command: ", err)
	}
	b := newBox(t, "native")
	p := b.sandbox()
	p.add("web", "exec sleep 1000")
	p.start("web")
	line := "stty rows 20 cols 70; rktctl app exec " + p.UUID() + " --app=web -t -- sh -c 'tty; until [ \"$(stty size)\" = \"20 70\" ]; do sleep 0.05; done; stty size; exit 5'; echo code $?; stty -a | tr ' ' '\n' | grep icanon"
	cmd := exec.CommandContext(t.Context(), "script", "-qec", line, "/dev/null")
	cmd.Env = append(os.Environ(), "PATH="+suite.bin+":"+os.Getenv("PATH"), "RKT_DATA_DIR="+b.DataDir, "RKT_CONFIG=")
	// At its input's end script types an end of file, which the exec's terminal would echo.
	in, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer open.Close()
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	text := strings.ReplaceAll(string(out), "\r", "")
	if err != nil || !strings.Contains(text, "20 70\ncode 5\nicanon\n") {
		t.Errorf("%v: %q", err, text)
	}
}

// Several apps of one pod, each with options and arguments of its own, as rkt's command line has
// them. The pod ends with the last one.
func TestRunMakesAPodOfSeveralApps(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, verb := range []string{"run", "prepare"} {
			out, code := b.rktctl(verb, "--stage1="+b.stage1, "--cgroup-parent=/"+suite.cgroup,
				suite.rootfs, "--app=one", "--env=PATH=/bin", "--cwd=/tmp", "--", "sh", "-c", "pwd; exit 3", "---",
				suite.rootfs, "--app", "two", "--env=PATH=/bin", "--env=A=of two", "--", "sh", "-c", `echo "$A"; exit 4`, "---",
				suite.rootfs, "--env=PATH=/bin", "--exec=/bin/hostname")
			if code != 0 {
				t.Fatalf("%s: %d: %s", verb, code, out)
			}
			uuid := strings.TrimSpace(out)
			made, err := b.Open(uuid)
			if err != nil {
				t.Fatal(err)
			}
			p := &pod{b, made}
			if verb == "prepare" {
				for _, name := range []string{"one", "two", "rootfs"} {
					p.expect(name, local.Prepared)
				}
				if out, code := b.rktctl("run-prepared", uuid); code != 0 {
					t.Fatalf("%d: %s", code, out)
				}
			}
			for name, exit := range map[string]int64{"one": 3, "two": 4, "rootfs": 0} {
				if st := p.await(name, local.Exited); st.ExitCode == nil || *st.ExitCode != exit {
					t.Errorf("%s: %+v", name, st)
				}
			}
			p.awaitLog("one", "/tmp\n")
			p.awaitLog("two", "of two\n")
			p.awaitLog("rootfs", "rkt-"+uuid+"\n")
		}
	})
}

// rktctl logs knows an app by its pod, or by its name, also after the pod has ended.
func TestLogsPrintsTheOutputOfALocalPod(t *testing.T) {
	b := newBox(t, "native")
	out, code := b.rktctl("run", "--cgroup-parent=/"+suite.cgroup, "--app=only", "--env=PATH=/bin", suite.rootfs, "--", "sh", "-c", "echo hello; exec sleep 1000")
	if code != 0 {
		t.Fatalf("%d: %s", code, out)
	}
	uuid := strings.TrimSpace(out)
	made, err := b.Open(uuid)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{b, made}
	p.awaitLog("only", "hello\n")
	for _, word := range []string{uuid, uuid[:13], "only", "onl"} {
		if out, code := b.rktctl("logs", word); code != 0 || out != "hello\n" {
			t.Errorf("%s: %d, %q", word, code, out)
		}
	}
	if out, code := b.rktctl("logs", "nosuch"); code != 1 || !strings.Contains(out, "no pod") {
		t.Errorf("%d, %q", code, out)
	}
	if err := p.Stop(t.Context(), "only", 0); err != nil {
		t.Fatal(err)
	}
	if out, code := b.rktctl("logs", "--follow", uuid[:13]); code != 0 || out != "hello\n" {
		t.Errorf("after the end of the pod: %d, %q", code, out)
	}
}
