package pod

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// wantFailure checks that an error has the facts of the pod's directory, which is gone.
func (w *world) wantFailure(err error) *StartFailure {
	w.t.Helper()
	f := (*StartFailure)(nil)
	if !errors.As(err, &f) || !errdefs.IsNotFound(err) || f.Stage1.Name != "fake" || f.Stage1.By != "annotation" || len(f.Pod) != 36 {
		w.t.Fatalf("%#v", err)
	}
	if len(f.Calls) != 1 || f.Calls[0].Entrypoint != abi.Run {
		w.t.Errorf("calls %+v", f.Calls)
	}
	return f
}

func TestTheErrorOfAStartHasTheJournalOfThePodThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.cfg.Choice = func() disk.Stage1Record { return disk.Stage1Record{By: "annotation"} }
	journal := func(c *fakeCall) error {
		return os.WriteFile(filepath.Join(c.Dir, "journal"), []byte(`{"entrypoint":"run","argv":["/run","secret"],"ms":1,"code":0}`+"\n"), 0o600)
	}
	broken := fails(errdefs.ErrNotFound.WithMessage("no such program"))

	w.stage1.on(abi.Run, journal)
	w.stage1.on(abi.AppAdd, broken)
	_, err := w.create("a", "exit 0")
	w.wantFailure(err)
	for _, state := range []string{"embryo", "prepare", "run", "exited-garbage"} {
		if dirs := w.podDirs(state); len(dirs) > 0 {
			t.Errorf("%s holds %v", state, dirs)
		}
	}

	w.stage1.on(abi.AppAdd)
	w.stage1.on(abi.Run, func(c *fakeCall) error { return errors.Join(journal(c), broken(c)) })
	_, err = w.create("a", "exit 0")
	w.wantFailure(err)

	w.stage1.on(abi.Run, journal)
	w.stage1.on(abi.AppStart, broken)
	w.mustCreate("a", "exit 0")
	_, err = w.Start(t.Context(), "a", "")
	w.wantFailure(err)
	w.mustDelete("a", "")
}

func TestAnErrorBeforeThereIsADirectoryIsAsItWas(t *testing.T) {
	w := newWorld(t)
	w.cfg.Admit = func(map[string]string) error { return errdefs.ErrInvalidArgument }
	_, err := w.create("a", "exit 0")
	if f := (*StartFailure)(nil); !errdefs.IsInvalidArgument(err) || errors.As(err, &f) {
		t.Errorf("%#v", err)
	}
}
