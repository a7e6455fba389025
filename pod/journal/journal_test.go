package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestAJournalIsBoundedAndItsLinesAreWhole(t *testing.T) {
	dir := t.TempDir()
	entry := Entry{Entrypoint: abi.Enter, Argv: []string{"/enter", strings.Repeat("a", 256)}, Error: strings.Repeat("e", 1024)}
	const writers, each = 8, 100
	var shared Writer
	var wg sync.WaitGroup
	for n := range writers {
		appendTo := shared.Append
		if n%2 == 0 {
			appendTo = Append // as another process does
		}
		wg.Go(func() {
			for range each {
				e := entry
				e.PID = n + 1
				if err := appendTo(dir, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, name := range []string{File, Old} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 2*size {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		for line := range bytes.Lines(text) {
			if !json.Valid(line) {
				t.Errorf("%s: torn line %.80q", name, line)
			}
		}
	}
	entries, err := Read(dir)
	if err != nil || len(entries) < size/2000 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// Another process may rotate the journal, or remove it, while a Writer has it open.
func TestAWriterAppendsToTheJournalThatThePodHas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prepare")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	var w Writer
	defer w.Close()
	pid := 0
	add := func() {
		t.Helper()
		pid++
		if err := w.Append(dir, Entry{Entrypoint: abi.Enter, PID: pid}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(name string, pids ...int) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, e := range Parse(text) {
			got = append(got, e.PID)
		}
		if !slices.Equal(got, pids) {
			t.Errorf("%s has the entries %v, want %v", name, got, pids)
		}
	}
	add()
	add()
	expect(File, 1, 2)
	if err := os.Rename(Path(dir), filepath.Join(dir, Old)); err != nil {
		t.Fatal(err)
	}
	add()
	expect(Old, 1, 2)
	expect(File, 3)
	if err := os.Remove(Path(dir)); err != nil {
		t.Fatal(err)
	}
	add()
	expect(File, 4)
	moved := filepath.Join(filepath.Dir(dir), "run")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	pid++
	if err := w.Append(dir, Entry{Entrypoint: abi.Enter, PID: pid}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the pod: %v", err)
	}
	dir = moved
	add()
	expect(File, 4, 6)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	add()
	expect(File, 4, 6, 7)
	if w.file != nil {
		t.Error("a closed Writer has kept the file open")
	}
}

func TestADamagedJournalIsReadAsFarAsPossible(t *testing.T) {
	dir := t.TempDir()
	if entries, err := Read(dir); err != nil || len(entries) != 0 {
		t.Errorf("without a journal: %v, %v", entries, err)
	}
	good := `{"entrypoint":"run","ms":1,"code":0,"argv":["/run"]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, File), []byte(good+"rubbish\n\n[]\n{}\n"+good+good[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	if entries, err := Read(dir); err != nil || len(entries) != 2 || entries[1].Entrypoint != abi.Run {
		t.Errorf("%v, %v", entries, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"entrypoint":"run","ms":1.5,"code":0,"argv":["/run"],"time":"2026-01-02T03:04:05Z"}` + "\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range Parse(text) {
			if e.Entrypoint == "" && len(e.Unknown) == 0 {
				t.Error("an entry of no call and without unknown fields")
			}
		}
	})
}

func TestAFollowerReadsEveryLineOnce(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := Follow(root)
	defer f.Close()
	next := 0
	read := func() {
		t.Helper()
		entries, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.PID != next {
				t.Fatalf("entry %d instead of %d", e.PID, next)
			}
			next++
		}
	}
	read()
	const lines = 2000 // several times the size of a journal
	for i := range lines {
		if err := Append(dir, Entry{Entrypoint: abi.Enter, PID: i, Error: strings.Repeat("e", 500)}); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			read()
		}
	}
	read()
	if next != lines {
		t.Errorf("%d entries of %d", next, lines)
	}
	half := `{"entrypoint":"enter","pid":2000`
	for _, text := range []string{half, `,"ms":1}` + "\n"} {
		j, err := os.OpenFile(Path(dir), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		read()
	}
	if next != lines+1 {
		t.Errorf("a line that was read in two pieces is missing")
	}
}
