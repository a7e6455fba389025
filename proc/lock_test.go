package proc_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func locked(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := proc.Lock(path, os.O_CREATE|os.O_RDWR, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil || f == nil {
		t.Fatalf("%v, %v", f, err)
	}
	return f
}

func TestALockIsWaitedForUntilItsOwnerGivesItUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	owner := locked(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- proc.FlockUntil(t.Context(), f, unix.LOCK_EX) }()
	wait.Still(t, "calls that have returned", func() int { return len(got) })
	owner.Close()
	if err := wait.For(t, "the lock is taken", got); err != nil {
		t.Error(err)
	}
	if _, err := proc.Lock(path, os.O_RDWR, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the lock has no owner: %v", err)
	}
	f.Close()
}

func TestAWaitForALockThatIsGivenUpKeepsNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	owner := locked(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := proc.FlockUntil(ctx, f, unix.LOCK_EX); !errors.Is(err, enough) {
		t.Errorf("%v, want %v", err, enough)
	}
	owner.Close()
	wait.Until(t, "the lock is free", func() bool {
		next, err := proc.Lock(path, os.O_RDWR, unix.LOCK_EX|unix.LOCK_NB)
		if next != nil {
			next.Close()
		}
		return err == nil
	})
}

func TestALockOfAFileThatWasReplacedIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	owner := locked(t, path)
	got := make(chan *os.File, 1)
	go func() {
		f, err := proc.Lock(path, os.O_RDWR, unix.LOCK_EX)
		if err != nil {
			t.Error(err)
		}
		got <- f
	}()
	wait.Still(t, "calls that have returned", func() int { return len(got) })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	owner.Close()
	if f := wait.For(t, "the call returns", got); f != nil {
		t.Error("it has the lock of a file that is no longer there")
	}
}

func TestLockedLeavesTheLockToItsOwner(t *testing.T) {
	dir := t.TempDir()
	expect := func(want bool) {
		t.Helper()
		if locked, err := proc.Locked(dir, os.O_RDONLY|unix.O_DIRECTORY); err != nil || locked != want {
			t.Errorf("locked: %v, %v, want %v", locked, err, want)
		}
	}
	expect(false)
	f, st, err := proc.LockStat(dir, os.O_RDONLY|unix.O_DIRECTORY, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		t.Fatal(err)
	}
	var want unix.Stat_t
	if err := unix.Lstat(dir, &want); err != nil || st.Ino != want.Ino || st.Nlink != want.Nlink {
		t.Errorf("inode %d with %d links, want %d with %d (%v)", st.Ino, st.Nlink, want.Ino, want.Nlink, err)
	}
	expect(true)
	expect(true)
	f.Close()
	expect(false)
	if _, err := proc.Locked(dir+"/x", os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
