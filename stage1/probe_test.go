package stage1

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

const staticFeatures = `{"oci":{"ociVersionMax":"1.0.2"},"fields":["/process/args"]}`

// probing is an image with features/probe, in a store.
type probing struct {
	t       *testing.T
	store   *image.Store
	image   *image.Image
	runtime string // the file that an answer depends on
	calls   string // a file with a line for each call
}

func newProbing(t *testing.T, script string) *probing {
	t.Helper()
	stage1test.RequireRoot(t)
	p := &probing{t: t, store: openStore(t), runtime: filepath.Join(t.TempDir(), "runtime"), calls: filepath.Join(t.TempDir(), "calls")}
	write := func(text string) {
		if err := os.WriteFile(p.runtime, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	if script == "" {
		script = `echo '{"oci":{"ociVersionMax":"1.3.0"},"fields":["/process/args","/hostname"],"files":["RUNTIME","/nonexistent"]}'`
	}
	dir := stage1test.Image{
		Features: staticFeatures,
		Scripts:  stage1test.Scripts{abi.FeaturesProbe: "echo call >>" + p.calls + "\n" + strings.ReplaceAll(script, "RUNTIME", p.runtime)},
	}.Dir(t)
	var err error
	if p.image, err = p.store.Image(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}
	return p
}

// probe returns the declared fields, and how often the entrypoint was called until now.
func (p *probing) probe() (fields []string, calls int, entries []journal.Entry, err error) {
	p.t.Helper()
	with, entries, err := Probe(p.t.Context(), p.store, p.image, "fake", children)
	fields, _ = with.Fields()
	text, _ := os.ReadFile(p.calls)
	return fields, strings.Count(string(text), "\n"), entries, err
}

func TestTheRuntimeBelowIsAskedOnceUntilItsFileChanges(t *testing.T) {
	p := newProbing(t, "")
	want := []string{"/process/args", "/hostname"}
	for n, c := range []struct {
		change func() error
		calls  int
	}{
		{func() error { return nil }, 1},
		{func() error { return nil }, 1},
		{func() error { return os.WriteFile(p.runtime, []byte("another"), 0o755) }, 2},
		{func() error { return nil }, 2},
		{func() error { return os.Remove(p.runtime) }, 3},
		{func() error { // of another boot
			records, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(p.image.Rootfs())), "probed/*.json"))
			text, err := os.ReadFile(records[0])
			if err != nil {
				return err
			}
			text = []byte(strings.Replace(string(text), `"bootID":"`, `"bootID":"0`, 1))
			return os.WriteFile(records[0], text, 0o600)
		}, 4},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		fields, calls, entries, err := p.probe()
		if err != nil || !slices.Equal(fields, want) || calls != c.calls {
			t.Errorf("case %d: %q after %d calls, want %d; %v", n, fields, calls, c.calls, err)
		}
		if made := n == 0 || n == 2 || n > 3; made != (len(entries) == 1) {
			t.Errorf("case %d: journal %+v", n, entries)
		}
	}
}

// If there is a record of the answer, a Create executes no additional program.
func TestTheJournalOfThePodThatAskedHasTheCall(t *testing.T) {
	p := newProbing(t, "")
	for n, want := range []int{1, 0} {
		with, entries, err := Probe(t.Context(), p.store, p.image, "fake", children)
		if err != nil {
			t.Fatal(err)
		}
		s := New(with, "fake", children)
		s.Abide(Rules{Probe: entries})
		dir := t.TempDir()
		if err := s.Attach(dir); err != nil {
			t.Fatal(err)
		}
		journal, err := journal.Read(dir)
		if err != nil || len(journal) != want || want == 1 && (journal[0].Entrypoint != abi.FeaturesProbe || journal[0].Code != 0) {
			t.Errorf("pod %d has the journal %+v, %v", n, journal, err)
		}
		if _, err := s.CheckSpec(readSpec(`{"hostname":"x"}`)); err != nil {
			t.Error(err)
		}
		if err := s.Detach(dir); err != nil {
			t.Error(err)
		}
	}
	if _, calls, _, _ := p.probe(); calls != 1 {
		t.Errorf("%d calls for two pods", calls)
	}
}

func TestWithoutAnAnswerTheFeaturesDocumentHolds(t *testing.T) {
	for name, c := range map[string]struct{ script, says string }{
		"a failure":       {`fail 7 "it cannot say"`, "it cannot say"},
		"no JSON":         {`echo hello`, "features document"},
		"nothing":         {`exit 0`, "features document"},
		"no file":         {`echo '{"fields":["/process/args"],"files":[]}'`, "0 files"},
		"no field":        {`echo '{"fields":[],"files":["/x"]}'`, "0 fields"},
		"a relative file": {`echo '{"fields":["/process/args"],"files":["x"]}'`, "absolute"},
		"a wrong pointer": {`echo '{"fields":["process"],"files":["/x"]}'`, "JSON pointer"},
		"two documents":   {`echo '{"fields":["/process/args"],"files":["/x"]}{}'`, "features document"},
		"a long answer":   {`exec head -c 2000000 /dev/zero`, "more than 1048576 bytes"},
		"an endless one":  {`exec cat /dev/zero`, "more than 1048576 bytes"},
		"many files":      {`printf '{"fields":["/x"],"files":["/0"'; for i in $(seq 99); do printf ',"/x%d"' $i; done; echo ']}'`, "100 files"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbing(t, c.script)
			fields, calls, entries, err := p.probe()
			if err == nil || !strings.Contains(err.Error(), c.says) || !slices.Equal(fields, []string{"/process/args"}) || calls != 1 || len(entries) != 1 {
				t.Errorf("%q, %d calls, journal %+v: %v", fields, calls, entries, err)
			}
			// The entrypoint is not called again for every pod.
			if fields, calls, _, err := p.probe(); err != nil || calls != 1 || !slices.Equal(fields, []string{"/process/args"}) {
				t.Errorf("the second time: %q, %d calls, %v", fields, calls, err)
			}
		})
	}
	if _, _, _, err := newProbing(t, `exit 7`).probe(); !errdefs.IsNotImplemented(err) {
		t.Errorf("code 7: %v", err)
	}
}

func TestAProbeEndsAtItsDeadline(t *testing.T) {
	for name, script := range map[string]string{
		"the call hangs":          `exec sleep 1000`,
		"it has left a process":   `sleep 1000 3>&- & exit 0`,
		"the answer does not end": `while :; do printf ' '; sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbing(t, script)
			s := New(p.image, "fake", children)
			s.Limit = func(abi.Entrypoint) time.Duration { return 300 * time.Millisecond }
			if text, err := s.probe(t.Context(), t.TempDir()); err == nil {
				t.Errorf("the answer is %.40q", fmt.Sprint(text))
			}
		})
	}
}
