package journal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestAJournalIsBoundedAndItsLinesAreWhole(t *testing.T) {
	dir := t.TempDir()
	entry := Entry{Entrypoint: abi.Enter, Argv: []string{"/enter", strings.Repeat("a", 256)}, Error: strings.Repeat("e", 1024)}
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for range each {
				e := entry
				e.PID = n + 1
				if err := Append(dir, e); err != nil {
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
