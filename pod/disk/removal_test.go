package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/pod/removal"
)

// docs/adr/0034-early-answers.md: the record in the bundle goes before the lock does.
func TestTheRecordOfABundleHasGoneWhenTheRemovalOfItsPodIsOver(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	d, err := c.Store.Create(testKey, Stage1Record{Name: "fake"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.AddApp(l.ID, l.Bundle(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := removal.Await(t.Context(), l.Bundle()); err != nil { // nobody removes it
		t.Error(err)
	}
	release, err := d.Hold()
	if err == nil {
		err = errors.Join(a.RemoveFiles(), d.MarkExited())
	}
	if err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removal.Await(now, l.Bundle()); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
	waited := crash.Waits(t, "Await", func() error { return removal.Await(t.Context(), l.Bundle()) })
	if err := errors.Join(d.Remove(t.Context()), a.RemoveBacklink()); err != nil {
		t.Error(err)
	}
	release()
	if err := waited(); err != nil {
		t.Error(err)
	}
	if err := removal.Await(t.Context(), l.Bundle()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a record: %v", err)
	}
	l.NothingLeft(t)
}

// The exit in a record is the answer to `delete`, so the record must be read as a whole.
func TestNobodyAwaitsTheRemovalOfAPodForARecordWithAnExit(t *testing.T) {
	c := newLife(t).collector(t)
	d := newDir(t, c.Store)
	bundle := t.TempDir()
	a, err := d.AddApp("c", bundle, &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := a.backlink().recordExit(&exitRecord{PID: 1, Code: 2, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	// A second `delete`, which finds no more from which it could read the exit, leaves it as it is.
	if known, err := a.backlink().recordExit(&exitRecord{PID: 1, Code: 137, At: time.Now()}); err != nil || known.Code != 2 {
		t.Errorf("the exit has become %+v: %v", known, err)
	}
	if err := removal.Await(t.Context(), bundle); err != nil {
		t.Error(err)
	}
	for _, text := range []string{`{"dataDir":"/","pod":"../x"}`, `{"dataDir":"/","pod":""}`, `{"dataDir":"` + t.TempDir() + `","pod":"x"}`} {
		if err := os.WriteFile(filepath.Join(bundle, bundleFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := removal.Await(t.Context(), bundle); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
