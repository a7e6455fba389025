package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

const earlierBoot = "00000000-0000-4000-8000-000000000000"

// damages are the states in which a power loss leaves a file of the last half minute.
var damages = map[string]func(file string) error{
	"empty":   func(file string) error { return os.Truncate(file, 0) },
	"zeros":   func(file string) error { return rewrite(file, func(b []byte) []byte { return make([]byte, len(b)) }) },
	"half":    func(file string) error { return rewrite(file, func(b []byte) []byte { return b[:len(b)/2] }) },
	"missing": os.Remove,
}

func rewrite(file string, change func([]byte) []byte) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, change(bytes.Clone(b)), 0o640)
}

// fromEarlierBoot moves a pod without processes to another boot.
func fromEarlierBoot(t *testing.T, d *Dir, bundles ...string) {
	t.Helper()
	link := filepath.Join(d.Path(), bootLink)
	if err := errors.Join(os.Remove(link), os.Symlink(earlierBoot, link), d.ReleaseLock()); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(d.Path(), shimFile), map[string]any{"bootID": earlierBoot})
	for _, b := range bundles {
		edit(t, filepath.Join(b, bundleFile), map[string]any{"bootID": earlierBoot})
	}
}

// Nothing of a pod is flushed to the disk, so a power loss may damage each of its records.
func TestAPodWhoseRecordsWereLostWithThePowerIsCollectedAfterIt(t *testing.T) {
	for _, record := range []string{shimFile, sandboxFile, podFile, filepath.Join(appsInfoDir, "APP", appFile), "bundle/" + bundleFile, "sandbox/" + bundleFile} {
		for damage, do := range damages {
			t.Run(record+" "+damage, func(t *testing.T) {
				s := newStore(t)
				d := newDir(t, s)
				bundle, sandbox := t.TempDir(), t.TempDir()
				a, err := d.AddApp("c", bundle, &specs.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.NewSandboxFiles(Sandbox{ID: "s", Bundle: sandbox}); err != nil {
					t.Fatal(err)
				}
				if err := d.Run(); err != nil {
					t.Fatal(err)
				}
				fromEarlierBoot(t, d, bundle, sandbox)
				file := filepath.Join(d.Path(), strings.Replace(record, "APP", string(a.Name()), 1))
				switch dir, name := filepath.Split(record); dir {
				case "bundle/":
					file = filepath.Join(bundle, name)
				case "sandbox/":
					file = filepath.Join(sandbox, name)
				}
				if err := do(file); err != nil {
					t.Fatal(err)
				}
				c := &Collector{Store: s, OpenStage1: func(string) (Stage1, error) { return nil, errors.New("its image is not there") }}
				for id, b := range map[string]string{"c": bundle, "s": sandbox} {
					if exit, err := c.Collect(t.Context(), b, testKey.Namespace, id); err != nil || exit.Found {
						t.Errorf("delete %s: %+v, %v", id, exit, err)
					}
				}
				if err := c.CollectStale(t.Context()); err != nil {
					t.Error(err)
				}
				if left := places(t, s); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			})
		}
	}
}

// A record of this boot that is damaged was damaged by hand, and its pod may have processes.
func TestAPodOfThisBootWithADamagedRecordIsKeptForAPerson(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	bundle := t.TempDir()
	if _, err := d.AddApp("c", bundle, &specs.Spec{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Run(), d.ReleaseLock()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(bundle, bundleFile), filepath.Join(d.Path(), shimFile)} {
		if err := damages["zeros"](file); err != nil {
			t.Fatal(err)
		}
		c := &Collector{Store: s}
		if _, err := c.Collect(t.Context(), bundle, testKey.Namespace, "c"); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("delete with %s: %v", file, err)
		}
		if _, err := os.Stat(d.Path()); err != nil {
			t.Fatal(err)
		}
	}
}

// A start looks at a few pods only. One that cannot be read is not one of them.
func TestDamagedPodsDoNotKeepAStartFromFindingAStaleOne(t *testing.T) {
	s := newStore(t)
	for range 4 * staleLooks {
		d := newDir(t, s)
		if err := errors.Join(d.Run(), d.ReleaseLock(), damages["zeros"](filepath.Join(d.Path(), shimFile))); err != nil {
			t.Fatal(err)
		}
	}
	stale := newDir(t, s)
	if err := stale.Run(); err != nil {
		t.Fatal(err)
	}
	fromEarlierBoot(t, stale)
	c := &Collector{Store: s, OpenStage1: func(string) (Stage1, error) { return nil, errors.New("its image is not there") }}
	err := c.CollectStale(t.Context())
	if _, gone := os.Stat(stale.Path()); gone == nil {
		t.Error("the stale pod was not found")
	}
	if err == nil || strings.Count(err.Error(), "is damaged") != staleErrors || !strings.Contains(err.Error(), fmt.Sprintf("and %d more", 3*staleLooks)) {
		t.Errorf("%v; want %d errors, and the number of others", err, staleErrors)
	}
}

// If the clock is set forward, another shim takes a new directory for an abandoned one.
func TestADirectoryThatIsRemovedBeforeItIsLockedIsMadeAgain(t *testing.T) {
	for _, at := range []string{"mkdir embryo", "lock"} {
		t.Run(at, func(t *testing.T) {
			s := newStore(t)
			removed := false
			s.Fault = func(step string) {
				if step == at && !removed {
					removed = true
					for _, p := range places(t, s) {
						if err := os.Remove(filepath.Join(s.dir, "pods", p)); err != nil {
							t.Error(err)
						}
					}
				}
			}
			d := newDir(t, s)
			if !removed {
				t.Fatal("nothing was removed")
			}
			if got, want := places(t, s), dirPrepare+"/"+d.UUID(); len(got) != 1 || got[0] != want {
				t.Errorf("pods: %q, want %s", got, want)
			}
		})
	}
}

// The UUID of a local pod is rktctl's choice.
func TestACreateThatFailsRemovesOnlyWhatItHasMade(t *testing.T) {
	s := newStore(t)
	key := Key{Namespace: "local", Sandbox: newUUID()}
	other := filepath.Join(s.path(dirEmbryo, key.Sandbox), "of another process")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(key, Stage1Record{}, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the directory of another process: %v", err)
	}
}
