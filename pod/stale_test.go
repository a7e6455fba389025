package pod

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// gcMaker is a stage1 whose gc makes its tree visible, in its own time.
type gcMaker struct {
	stopper
	t     *testing.T
	alone *sync.Mutex
}

func (g gcMaker) Attach(dir string) error {
	if !g.alone.TryLock() {
		g.t.Error("the tree is made visible for two gcs at a time")
		return nil
	}
	defer g.alone.Unlock()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	time.Sleep(10 * time.Millisecond)
	return root.MkdirAll("stage1/rootfs/rkt/status", 0o755)
}

func (g gcMaker) Invoke(_ context.Context, c Call) error {
	if c.Request.Entrypoint == abi.GC {
		return g.Attach(c.Dir)
	}
	return nil
}

// A shim that starts removes what it finds stale, a `delete` that goes on included.
func TestOneAtATimeRemovesAPod(t *testing.T) {
	s := newStore(t)
	for range 20 {
		d := newDir(t, s)
		d.shim.BootID = "00000000-0000-4000-8000-000000000000"
		writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)
		if err := d.ReleaseLock(); err != nil {
			t.Fatal(err)
		}
		alone := &sync.Mutex{}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c := &Collector{Store: s, OpenStage1: func(dir string) (Stage1, error) {
					if _, err := os.Stat(dir); err != nil {
						return nil, err
					}
					return gcMaker{stopper{dir: dir}, t, alone}, nil
				}}
				if err := c.CollectStale(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if left := places(t, s); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

func BenchmarkCollectStaleWithNothingToDo(b *testing.B) {
	s := newStore(b)
	for range 40 {
		if err := newDir(b, s).Run(); err != nil {
			b.Fatal(err)
		}
	}
	c := &Collector{Store: s}
	for b.Loop() {
		if err := c.CollectStale(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
