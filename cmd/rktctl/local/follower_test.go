package local

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// writer writes and replaces a log, step by step, as the shim's boundedLog does.
type writer struct {
	*testing.T
	log string
	w   *os.File
	all bytes.Buffer
}

func newWriter(t *testing.T) (*writer, *follower) {
	s := &Store{DataDir: t.TempDir()}
	p := &Pod{store: s, uuid: "11111111-2222-4333-8444-555555555555"}
	if err := os.MkdirAll(p.path(logsDir), dirMode); err != nil {
		t.Fatal(err)
	}
	f := &follower{app: p.app("web")}
	w := &writer{T: t, log: f.app.log()}
	w.open()
	t.Cleanup(func() { w.w.Close() })
	return w, f
}

func (w *writer) open() {
	w.Helper()
	f, err := os.OpenFile(w.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	w.w = f
}

func (w *writer) write(text string) {
	w.Helper()
	w.all.WriteString(text)
	if _, err := w.w.WriteString(text); err != nil {
		w.Fatal(err)
	}
}

// replace calls between after each step.
func (w *writer) replace(between func()) {
	w.Helper()
	for i := LogFiles - 1; i > 0; i-- {
		if err := os.Rename(older(w.log, i-1), older(w.log, i)); err != nil && !os.IsNotExist(err) {
			w.Fatal(err)
		}
		between()
	}
	old := w.w
	w.open()
	between()
	old.Close()
	between()
}

// A reader that comes at any step of a replacement, and not at others, gets every line once.
func TestNoLineIsLostWhenALogIsReplaced(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w, f := newWriter(t)
		var got bytes.Buffer
		f.to = &got
		behind := 0 // replacements since the last reading
		read := func(now bool) {
			if !now && r.IntN(3) > 0 {
				return
			}
			if err := f.copy(); err != nil {
				t.Fatal(err)
			}
			behind = 0
		}
		for i := range 30 {
			w.write(fmt.Sprintf("line %d\n", i))
			read(false)
			if r.IntN(2) == 0 {
				read(behind >= LogFiles-2) // before the file that is read now is removed
				w.replace(func() {
					if r.IntN(4) == 0 {
						read(true)
					}
				})
				behind++
			}
		}
		read(true)
		if got.String() != w.all.String() || f.lost {
			t.Fatalf("seed %d: lost %v, read %q, written %q", seed, f.lost, got.String(), w.all.String())
		}
		f.file.Close()
	}
}

// A reader that is too slow for the bound of the log says so, and goes on with the oldest file.
func TestAReaderThatIsTooSlowSaysThatLinesAreMissing(t *testing.T) {
	w, f := newWriter(t)
	var got bytes.Buffer
	f.to = &got
	w.write("first\n")
	if err := f.copy(); err != nil {
		t.Fatal(err)
	}
	for i := range LogFiles + 1 {
		w.write(fmt.Sprintf("%d\n", i))
		w.replace(func() {})
	}
	w.write("last\n")
	if err := f.copy(); err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	// The file with the first line was open, so what was added to it is read.
	if got.String() != "first\n0\n2\n3\nlast\n" || !f.lost {
		t.Errorf("lost %v, read %q", f.lost, got.String())
	}
}
