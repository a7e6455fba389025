package first

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// shim builds the shim and returns its path.
func shim(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it no call is answered early")
	}
	path := filepath.Join(t.TempDir(), "containerd-shim-rkt-v1")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// before are the packages of other projects that may be initialised before this one although it
// does not need them: they import little, too, and their paths come first. What they do is a
// part of every early answer: docs/adr/0034-early-answers.md.
var before = []string{
	"github.com/containerd/containerd/v2/pkg/kernelversion",
	"github.com/containerd/continuity/devices",
	"github.com/moby/sys/userns",
	"github.com/opencontainers/image-spec/specs-go",
	"github.com/opencontainers/runtime-spec/specs-go",
	"github.com/pelletier/go-toml/v2",
	"github.com/pelletier/go-toml/v2/unstable",
	"github.com/ulikunitz/xz",
	"github.com/ulikunitz/xz/internal/xlog",
	"github.com/ulikunitz/xz/lzma",
	"golang.org/x/sys/unix",
	"google.golang.org/protobuf/encoding/protowire",
	"google.golang.org/protobuf/internal/detrand",
	"google.golang.org/protobuf/internal/errors",
}

func TestLittleIsInitialisedBeforeAnEarlyAnswer(t *testing.T) {
	path := shim(t)
	initialised := func(args ...string) (others []string) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"GODEBUG=inittrace=1"}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, &stderr)
		}
		for line := range strings.Lines(stderr.String()) {
			words := strings.Fields(line)
			if len(words) > 1 && words[0] == "init" && strings.Contains(words[1], ".") && !strings.Contains(words[1], "/containerd-shim-rkt-v1/") {
				others = append(others, words[1])
			}
		}
		return others
	}
	for _, pkg := range initialised("-namespace", "n", "-id", "c", "delete") {
		if !slices.Contains(before, pkg) {
			t.Errorf("%s is initialised", pkg)
		}
	}
	if all := initialised("-v"); len(all) < 2*len(before) {
		t.Errorf("-v initialises only %q: the test is broken", all)
	}
}

// The shim is replaced by a rename, as scripts/place and packages do it.
// requirements.md#B1
func TestAnUpgradeDuringStartsFailsNone(t *testing.T) {
	releases := [2]string{shim(t), shim(t)}
	dir, err := os.MkdirTemp("/tmp", "rkt-s-") // t.TempDir is longer than a socket directory may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "containerd-shim-rkt-v1")
	install := func(release string) {
		if err := os.Link(release, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	install(releases[0])

	socket, err := early.SocketPath("", dir, "n", "pod")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(socket), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	bundle := t.TempDir()
	spec := fmt.Sprintf(`{"annotations":{%q:"pod"}}`, "io.containerd.rkt.v1.group")
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}

	const starts = 100
	ended := make(chan error, starts)
	go func() {
		for i := range starts {
			cmd := exec.CommandContext(t.Context(), path, "-namespace", "n", "-id", fmt.Sprint("c", i), "-address", dir, "start")
			cmd.Dir = bundle
			out, err := cmd.CombinedOutput()
			if err == nil && string(out) != early.AddressPrefix+socket {
				err = fmt.Errorf("it answered %q", out)
			}
			ended <- err
		}
	}()
	for i := range starts {
		install(releases[(i+1)%2])
		if err := <-ended; err != nil {
			t.Errorf("start %d: %v", i, err)
		}
	}
}

// Descriptor 0 of a call that is not answered early can be read again.
func TestStdinIsReadAgain(t *testing.T) {
	path := shim(t)
	text := []byte("no protobuf at all")
	cmd := exec.CommandContext(t.Context(), path, "-namespace", "n", "-id", "c", "start")
	cmd.Dir, cmd.Stdin = t.TempDir(), bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	if want := "stdin holds neither"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %q, want %q in it", err, out, want)
	}
}
