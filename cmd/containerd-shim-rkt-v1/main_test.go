package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

const front = "containerd-shim-rkt-v1"

// built is a directory with the front and the server program, and the same again as another
// release. It is made once.
var built string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if built, err = os.MkdirTemp("", "front-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(built)
	for name, pkg := range map[string]string{front: ".", early.ServerProgram: "../containerd-shim-rkt-server"} {
		for _, release := range releases {
			build := exec.Command("go", "build", "-ldflags", "-X main.version="+release, "-o", filepath.Join(built, release, name), pkg)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				return 1, fmt.Errorf("%w: %s", err, out)
			}
		}
	}
	return wait.Run(m), nil
}

var releases = []string{"one", "two"}

// node is a place for a shim's files, and for what it makes.
type node struct {
	*testing.T
	dir string // as short as a socket directory has to be
	bin string // that is the PATH
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, as the shim does")
	}
	dir, err := os.MkdirTemp("/tmp", "rkt-f-")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t, dir, filepath.Join(dir, "usr/bin")}
	t.Cleanup(func() {
		wait.Until(t, "the servers of the test have ended", func() bool {
			for _, pid := range n.servers() {
				_ = exec.Command("kill", "-9", pid).Run()
			}
			return len(n.servers()) == 0
		})
		os.RemoveAll(dir)
	})
	n.install("one", early.ServerProgram, "usr/libexec/containerd-shim-rkt")
	n.install("one", front, "usr/bin")
	write(t, filepath.Join(n.dir, "config.toml"), "")
	return n
}

// install puts a program of a release into a directory, as scripts/place and packages do it.
func (n *node) install(release, name, dir string) {
	n.Helper()
	to := filepath.Join(n.dir, dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		n.Fatal(err)
	}
	if err := os.Link(filepath.Join(built, release, name), to+".new"); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		n.Fatal(err)
	}
}

func (n *node) server() string {
	return filepath.Join(n.dir, "usr/libexec/containerd-shim-rkt", early.ServerProgram)
}

// servers returns the pids of the servers of the node.
func (n *node) servers() (pids []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), "-address\x00"+n.dir+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// call executes a program as containerd 1.6 does, in the bundle of a container.
func (n *node) call(program, id string, stdin []byte, args ...string) (stdout, stderr string, err error) {
	n.Helper()
	bundle := filepath.Join(n.dir, "bundles", id)
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(n.Context(), program, append([]string{"-namespace", "n", "-id", id, "-address", n.dir}, args...)...)
	cmd.Dir, cmd.Stdin = bundle, bytes.NewReader(stdin)
	cmd.Env = []string{"PATH=" + n.bin, "RKT_DATA_DIR=" + filepath.Join(n.dir, "rkt"), "RKT_CONFIG=" + filepath.Join(n.dir, "config.toml")}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err = cmd.Run()
	return out.String(), text.String(), err
}

func (n *node) socket(id string) string {
	path, err := early.SocketPath("", n.dir, "n", id)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { os.Remove(path) })
	return path
}

// Both programs are replaced by renames, the server program first, and starts of new pods and of
// containers that join a pod go on.
// requirements.md#B1
func TestAnUpgradeDuringStartsFailsNone(t *testing.T) {
	n := newNode(t)
	pod := n.socket("pod")
	write(t, filepath.Join(n.dir, "spec.json"), `{"annotations":{"io.containerd.rkt.v1.group":"pod"}}`)
	const starts = 100
	ended := make(chan error, starts)
	go func() {
		for i := range starts {
			id, socket := fmt.Sprint("c", i), pod
			if i%2 == 0 {
				socket = n.socket(id) // a new pod
			} else if err := os.MkdirAll(filepath.Join(n.dir, "bundles", id), 0o700); err != nil {
				ended <- err
				continue
			} else if err := os.Link(filepath.Join(n.dir, "spec.json"), filepath.Join(n.dir, "bundles", id, "config.json")); err != nil {
				ended <- err
				continue
			}
			out, text, err := n.call(filepath.Join(n.bin, front), id, nil, "start")
			if err != nil || text != "" || out != early.AddressPrefix+socket {
				err = fmt.Errorf("%v: it answered %q and said %q", err, out, text)
			}
			ended <- err
		}
	}()
	for i := range starts {
		n.install(releases[(i+1)%2], early.ServerProgram, "usr/libexec/containerd-shim-rkt")
		n.install(releases[(i+1)%2], front, "usr/bin")
		if err := <-ended; err != nil {
			t.Errorf("start %d: %v", i, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The server program gets all that the front has got.
func TestACallThatTheFrontDoesNotAnswerIsWhole(t *testing.T) {
	n := newNode(t)
	for _, stage1 := range []string{"oci", "nspawn", "fly", "kvm", "mine"} {
		name := "containerd-shim-rkt-" + stage1 + "-v1"
		link := filepath.Join(n.bin, name)
		if err := os.Symlink(front, link); err != nil {
			t.Fatal(err)
		}
		// argv[0]
		if out, text, err := n.call(link, "c", nil, "-v"); err != nil || !strings.HasPrefix(out, name+":\n  Version:    one\n") {
			t.Errorf("%s -v: %v, %q, %q", name, err, out, text)
		}
		if _, text, err := n.call(link, "c", nil, "-info"); err == nil || !strings.Contains(text, name+": ") || !strings.Contains(text, "stage1 called "+stage1) {
			t.Errorf("%s -info: %v, %q", name, err, text)
		}
	}
	// Standard input, which `start` has read already.
	for _, action := range []string{"start", "-info"} {
		if _, text, err := n.call(filepath.Join(n.bin, front), "c", []byte("no protobuf at all"), action); err == nil || !strings.Contains(text, "proto") {
			t.Errorf("%s: %v, %q", action, err, text)
		}
	}
	// Arguments and environment.
	write(t, filepath.Join(n.dir, "config.toml"), "nonsense = 1\n")
	if _, text, err := n.call(filepath.Join(n.bin, front), "c", nil, "-info"); err == nil || !strings.Contains(text, "config.toml:1:1: unknown key nonsense") {
		t.Errorf("%v, %q", err, text)
	}
	if _, text, err := n.call(filepath.Join(n.bin, front), "c", nil, "-nonsense", "start"); err == nil || !strings.Contains(text, "unknown flag -nonsense") {
		t.Errorf("%v, %q", err, text)
	}
}

// The configuration is read by the server. Its error is that of `start`, and rktctl why knows it.
func TestAnErrorOfTheConfigurationReachesTheClient(t *testing.T) {
	n := newNode(t)
	write(t, filepath.Join(n.dir, "config.toml"), "nonsense = 1\n")
	out, text, err := n.call(filepath.Join(n.bin, front), "c", nil, "start")
	if err == nil || out != "" || !strings.HasPrefix(text, front+": this node's operator has to correct") || !strings.Contains(text, "config.toml:1:1: unknown key nonsense") {
		t.Errorf("%v: %q, %q", err, out, text)
	}
	if exists(n.socket("c")) || len(n.servers()) > 0 {
		t.Errorf("a socket or a server is left: %v", n.servers())
	}
	records, err := filepath.Glob(filepath.Join(n.dir, "rkt/failed/*"))
	if err != nil || len(records) != 1 {
		t.Fatalf("the records are %q, %v", records, err)
	}
	if record, err := os.ReadFile(records[0]); err != nil || !strings.Contains(string(record), "unknown key nonsense") {
		t.Errorf("the record is %s, %v", record, err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// containerd accepts any path as a runtime.
func TestTheServerProgramIsFound(t *testing.T) {
	n := newNode(t)
	n.install("one", front, "opt")
	elsewhere := filepath.Join(n.dir, "opt", front)
	linked := filepath.Join(n.dir, "linked")
	if err := os.Symlink(filepath.Join(n.bin, front), linked); err != nil {
		t.Fatal(err)
	}
	found := func(name, program string) {
		t.Helper()
		if out, text, err := n.call(program, "c", nil, "-v"); err != nil || !strings.Contains(out, "Version:    one") {
			t.Errorf("%s: %v, %q, %q", name, err, out, text)
		}
	}
	found("an absolute path", filepath.Join(n.bin, front))
	found("a link to the shim", linked)
	found("a copy of the shim, beside the shim in PATH", elsewhere)
	n.install("two", early.ServerProgram, "opt")
	if out, _, _ := n.call(elsewhere, "c", nil, "-v"); !strings.Contains(out, "Version:    two") {
		t.Errorf("a copy with a server program of its own answers %q", out)
	}
}

func TestAMissingServerProgramIsToldInWords(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(n.server()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"start"}, {"-v"}, {"-info"}} {
		_, text, err := n.call(filepath.Join(n.bin, front), "c", nil, args...)
		want := fmt.Sprintf("%s: the shim's server program is missing: there is no %s and no %s; install this release again, as a whole\n",
			front, filepath.Join(n.bin, early.ServerProgram), n.server())
		if err == nil || text != want {
			t.Errorf("%q: %v, %q, want %q", args, err, text, want)
		}
	}
	if socket := n.socket("c"); exists(socket) || exists(socket+early.LockSuffix) {
		t.Error("a socket or a lock is left")
	}
	// Nothing is to be done, so nothing is missing.
	if out, text, err := n.call(filepath.Join(n.bin, front), "c", nil, "delete"); err != nil || out == "" {
		t.Errorf("delete: %v, %q, %q", err, out, text)
	}
	// A program that cannot be executed.
	write(t, n.server(), "no program")
	if _, text, err := n.call(filepath.Join(n.bin, front), "c", nil, "start"); err == nil || !strings.Contains(text, "execute "+n.server()+": permission denied") {
		t.Errorf("%v, %q", err, text)
	}
}

// A release whose front and server program agree on something else has a server program of another
// name, and the release before the front had none. A front that was executed before it was replaced may
// find that its server program is gone: the program in its place has one.
func TestAFrontThatWasReplacedBecomesTheProgramInItsPlace(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(n.server()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.bin, front)
	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	bundle := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, "-namespace", "n", "-id", "c", "-address", n.dir, "start")
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = bundle, stdin, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	// The front waits for its input.
	next := path + ".new"
	write(t, next, "#!/bin/sh\necho \"$0\" \"$@\"; exec cat\n")
	if err := os.Chmod(next, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("no protobuf"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &out)
	}
	if want := fmt.Sprintf("%s -namespace n -id c -address %s start\nno protobuf", path, n.dir); out.String() != want {
		t.Errorf("the program in the front's place got %q, want %q", &out, want)
	}
}

// Most of the time of an early answer is Go's own start: docs/adr/0041-a-thin-front.md.
func TestTheFrontInitialisesLittle(t *testing.T) {
	n := newNode(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(n.bin, front), "-namespace", "n", "-id", "c", "delete")
	cmd.Dir, cmd.Env = t.TempDir(), []string{"GODEBUG=inittrace=1"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var initialised []string
	for line := range strings.Lines(stderr.String()) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "init" {
			initialised = append(initialised, words[1])
		}
	}
	const most = 36
	if others := slices.DeleteFunc(slices.Clone(initialised), func(pkg string) bool { return !strings.Contains(pkg, ".") }); len(others) > 2 {
		t.Errorf("packages of others are initialised: %q", others)
	}
	if len(initialised) == 0 || len(initialised) > most {
		t.Errorf("%d packages are initialised, and not at most %d: %q", len(initialised), most, initialised)
	}
}
