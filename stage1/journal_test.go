package stage1

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestEveryCallIsInTheJournal(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.AppStart: `exit 0`, abi.AppStop: `echo "no such app" >&3; exit 5`, abi.AppSignal: `echo careful >&2`,
		abi.Enter: `fail 1 x`,
	})
	_ = p.Invoke(t.Context(), p.call(abi.AppStart))
	_ = p.Invoke(t.Context(), p.call(abi.AppStop))
	_ = p.Invoke(t.Context(), p.call(abi.AppSignal))
	c := p.call(abi.Enter)
	c.Request.Exec, c.Process = "e1", readProcess(`{"args":["sh","-c","`+strings.Repeat("ü", 500)+`"]}`)
	if _, err := p.Enter(t.Context(), c, [3]*os.File{}); err == nil {
		t.Fatal("no error")
	}
	entries, err := ReadJournal(p.dir)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []Entry{
		{Entrypoint: abi.AppStart}, {Entrypoint: abi.AppStop, Code: 5, Error: "no such app"},
		{Entrypoint: abi.AppSignal, Error: "careful"}, {Entrypoint: abi.Enter, Exec: "e1", Code: 1, Error: "x"},
	} {
		e := entries[i]
		if e.Entrypoint != want.Entrypoint || e.Code != want.Code || e.Error != want.Error || e.App != "app-1" || e.Exec != want.Exec {
			t.Errorf("%+v, want %+v", e, want)
		}
		if e.Millis <= 0 || e.PID == 0 || time.Since(e.Time) > time.Minute || e.State != "" || len(e.Argv) < 3 {
			t.Errorf("%+v", e)
		}
	}
	if last := entries[3].Argv; last[0] != "/enter" || last[6] != strings.Repeat("ü", journalArg/2) {
		t.Errorf("arguments %q", last)
	}
	if st, err := os.Stat(journalPath(p.dir)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestAJournalIsBoundedAndItsLinesAreWhole(t *testing.T) {
	dir := t.TempDir()
	entry := Entry{Entrypoint: abi.Enter, Argv: []string{"/enter", strings.Repeat("a", journalArg)}, Error: strings.Repeat("e", journalText)}
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for range each {
				e := entry
				e.PID = n + 1
				if err := appendEntry(dir, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, name := range []string{journalFile, journalOld} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 2*journalSize {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		for line := range bytes.Lines(text) {
			if !json.Valid(line) {
				t.Errorf("%s: torn line %.80q", name, line)
			}
		}
	}
	entries, err := ReadJournal(dir)
	if err != nil || len(entries) < journalSize/2000 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func TestADamagedJournalIsReadAsFarAsPossible(t *testing.T) {
	dir := t.TempDir()
	if entries, err := ReadJournal(dir); err != nil || len(entries) != 0 {
		t.Errorf("without a journal: %v, %v", entries, err)
	}
	good := `{"entrypoint":"run","ms":1,"code":0,"argv":["/run"]}` + "\n"
	if err := os.WriteFile(journalPath(dir), []byte(good+"rubbish\n\n[]\n{}\n"+good+good[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	if entries, err := ReadJournal(dir); err != nil || len(entries) != 2 || entries[1].Entrypoint != abi.Run {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestAJournalThatCannotBeWrittenCostsNoCall(t *testing.T) {
	p := newFakePod(t, nil)
	if err := os.Mkdir(journalPath(p.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Invoke(t.Context(), pod.Call{Dir: p.dir, Request: abi.Request{Entrypoint: abi.AppStart, App: "a"}}); err != nil {
		t.Error(err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"entrypoint":"run","ms":1.5,"code":0,"argv":["/run"],"time":"2026-01-02T03:04:05Z"}` + "\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range parseJournal(text) {
			if e.Entrypoint == "" {
				t.Error("an entry without an entrypoint")
			}
		}
	})
}
