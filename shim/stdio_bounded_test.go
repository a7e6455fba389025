package shim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// requirements.md#I3
func TestABoundedLogKeepsTheNewestOutputOfBothStreams(t *testing.T) {
	const size, files = minLogSize, 3
	log := filepath.Join(t.TempDir(), "log")
	uri := fmt.Sprintf("file://%s?max-size=%d&max-files=%d", log, size, files)
	r := newRig(t, streams{stdout: uri, stderr: uri}, owner{})
	exitCode(t, r.start("seq 1 30000 & seq 30001 60000 >&2; wait; echo end; echo end >&2"))
	r.drain()
	entries, err := os.ReadDir(filepath.Dir(log))
	if err != nil || len(entries) != files {
		t.Errorf("%d files, want %d: %v", len(entries), files, err)
	}
	var all []byte
	for i := files - 1; i >= 0; i-- {
		b, err := os.ReadFile(older(log, i))
		if err != nil || len(b) > size || len(b) == 0 {
			t.Errorf("%s has %d bytes, want 1 to %d: %v", older(log, i), len(b), size, err)
		}
		all = append(all, b...)
	}
	if !bytes.HasSuffix(all, []byte("end\n")) {
		t.Errorf("the newest output is not at the end: %.40q", all[max(0, len(all)-40):])
	}
}

// A later process with the same log must not begin with an empty count.
func TestABoundedLogCountsWhatIsThere(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, bytes.Repeat([]byte("x"), minLogSize), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, streams{stdout: fmt.Sprintf("file://%s?max-size=%d", log, minLogSize)}, owner{})
	exitCode(t, r.start("echo new"))
	r.drain()
	if b, err := os.ReadFile(log); err != nil || string(b) != "new\n" {
		t.Errorf("%.40q, %v: one file is kept, so the old output is dropped", b, err)
	}
}

// Such as /dev/null, which would be renamed.
func TestWhatIsNoFileHasNoBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "null")
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip(err)
	}
	o := newOpener("testing", children)
	if _, err := o.open(t.Context(), streams{stdout: "file://" + path + "?max-size=20000"}, owner{}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v, want that it is no file", err)
	}
	o.close(t.Context())
}

func TestABoundThatIsNoneIsRefusedByName(t *testing.T) {
	for query, word := range map[string]string{
		"max-size=1":                      "max-size=1:",
		"max-size=-5":                     "max-size=-5:",
		"max-size=1e6":                    "max-size=1e6:",
		"max-size=20000&max-files=0":      "max-files=0:",
		"max-size=20000&max-files=1000":   "max-files=1000:",
		"max-size=99999999999999999999":   "max-size=9",
		"max-size=20000&max-files=../../": "max-files=",
	} {
		if _, err := parseTarget("file:///x?" + query); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if got, err := parseTarget("file:///x?other=1&max-files=2"); err != nil || got.bound != (bound{}) {
		t.Errorf("%+v, %v: other keys are ignored", got, err)
	}
}

// A moment without descriptors, such as a burst of execs, costs the output of that moment.
func TestALogThatCannotBeReplacedForAMomentGoesOn(t *testing.T) {
	for _, files := range []int{1, 2} {
		t.Run(fmt.Sprint(files, " files"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			l, err := openBounded(path, bound{size: minLogSize, files: files})
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			p := &pump{dst: &sink{name: path, log: l, file: true}, own: &owner{}}
			say := func(text string) {
				t.Helper()
				if err := p.dst.write([]byte(text)); err != nil {
					p.count(len(text), err)
				}
			}
			say(strings.Repeat("a", minLogSize))
			withoutDescriptors(t, func() { say("while there is no descriptor\n") })
			if p.lost == 0 {
				t.Error("the log was replaced, so nothing was tested")
			}
			say("after\n")
			if text, err := os.ReadFile(path); err != nil || string(text) != "after\n" {
				t.Errorf("the log has %.40q, %v", text, err)
			}
			if text, err := os.ReadFile(older(path, 1)); files > 1 && (err != nil || len(text) != minLogSize) {
				t.Errorf("the older file has %.40q, %v", text, err)
			}
			if rest, err := filepath.Glob(path + "*"); err != nil || len(rest) != files {
				t.Errorf("files: %q, %v", rest, err)
			}
		})
	}
}

// withoutDescriptors calls f while this process cannot open files.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 3, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// A file on a full disk is written again when there is room.
func TestALogOnADiskThatWasFullGoesOn(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a tmpfs: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	fill := filepath.Join(dir, "fill")
	_ = os.WriteFile(fill, make([]byte, 128<<10), 0o600)
	path := filepath.Join(dir, "log")
	in := mkfifo(t, "in")
	r := newRig(t, streams{stdout: "file://" + path}, owner{})
	c := r.start("echo lost; read x <" + in + "; echo after")
	reply, err := os.OpenFile(in, os.O_WRONLY, 0) // waits until the process has written
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Close()
	p := r.io.outputs[0]
	wait.Until(t, "the first line was read", func() bool { return pending(p.src)&unix.POLLIN == 0 && !p.holding.Load() })
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if _, err := reply.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
	r.drain()
	if text, err := os.ReadFile(path); err != nil || string(text) != "after\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
}
