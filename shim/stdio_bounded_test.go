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
