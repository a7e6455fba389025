package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// mutableApp is an app of a mutable pod.
type mutableApp struct {
	call    pod.Call // of app/add
	made    *immutable.Composition
	streams *carrier

	once    sync.Once
	over    chan struct{}   // closed when the app has ended
	ended   chan abi.Status // gets the status when the app has ended and its output was moved
	becomes chan abi.Ready  // gets the app's process when it is known

	started atomic.Bool
	settled chan struct{}                // closed when app/start has returned
	main    atomic.Pointer[proc.Process] // the first process of a settled app, if it is known
	told    atomic.Int32                 // the last signal that stage 0 has sent
}

// end reports the end of the app. Only the first call has an effect. It waits until all
// output was moved, because clients read none after the end.
func (a *mutableApp) end(st abi.Status) {
	a.once.Do(func() {
		close(a.over)
		if !a.started.Load() {
			a.streams.close() // carry was not started, so it does not close them
			a.ended <- st
			return
		}
		go func() {
			<-a.streams.carried
			a.ended <- st
		}()
	})
}

// signal signals the app's first process, which exists after app/start. SIGWINCH resizes
// the app's terminal.
func (a *mutableApp) signal(sig syscall.Signal) error {
	if sig == unix.SIGWINCH && a.streams.terminal {
		return a.streams.resize()
	}
	main := a.main.Load()
	if main == nil {
		return fmt.Errorf("app %s: it has no process: %w", a.made.Name, errdefs.ErrNotFound)
	}
	return a.send(main, sig)
}

// send signals the app's first process.
func (a *mutableApp) send(main *proc.Process, sig syscall.Signal) error {
	err := main.Signal(sig)
	if errors.Is(err, proc.ErrGone) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("app %s: %w", a.made.Name, proc.ErrGone)
	}
	return err
}

// Add adds an app to the pod. If it fails, nothing of the app remains.
func (s *mutable) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (_ *pod.Process, err error) {
	c.Request.Entrypoint = abi.AppAdd
	a := &mutableApp{ended: make(chan abi.Status, 1), becomes: make(chan abi.Ready, 1), over: make(chan struct{}), settled: make(chan struct{})}
	if a.made, err = s.Compose(c, true); err != nil {
		return nil, s.Refused(err.Error(), err)
	}
	if err := immutable.CheckProgram(c.Request.Rootfs, a.made.Spec.Process); err != nil {
		return nil, s.Refused(err.Error(), err)
	}
	if err := s.boot(ctx, c.Spec); err != nil {
		return nil, err
	}
	leader, err := s.ready(c)
	if err != nil {
		return nil, err
	}
	c.Leader = leader.PID
	if err := s.fits(a.made.Spec, leader.PID); err != nil {
		return nil, err
	}
	a.call = c
	if a.streams, err = newCarrier(stdio, c.Request.Terminal, a.made.Spec.Process, s.opensByName()); err != nil {
		return nil, fmt.Errorf("app %s: %w", a.made.Name, err)
	}
	a.made.Annotations = a.streams.modes()
	// Hold the lock during the whole step, as rkt does, because a half made app makes every
	// app/add fail.
	if err := disk.LockManifest(c.Dir, func() error { return s.add(ctx, a) }); err != nil {
		a.streams.close()
		return nil, err
	}
	s.mu.Lock()
	s.apps[c.Request.App] = a
	s.mu.Unlock()
	if !s.launched().Runs() { // over ran before it could see this app
		a.end(abi.Status(proc.Killed()))
	}
	return &pod.Process{
		PID: leader.PID, StartTime: leader.StartTime, Recorder: pod.RecordedByCall, OwnCgroup: true, Console: a.streams.take(),
		Signal: a.signal, Becomes: a.becomes, Ended: a.ended,
	}, nil
}

func (s *mutable) add(ctx context.Context, a *mutableApp) error {
	for _, step := range []func() error{
		a.made.Write,
		func() error { return s.MountRoot(a.call.Request.Rootfs, a.made) },
		func() error { return s.MountVolumes(a.made, a.call.Request.Bundle) },
		func() error { return s.accommodateApp(a) },
		func() error { return s.Stage1.Invoke(ctx, a.call) },
	} {
		if err := step(); err != nil {
			return errors.Join(err, s.erase(a.made))
		}
	}
	return nil
}

// erase removes the files and mounts of an app. The caller holds the manifest's lock.
func (s *mutable) erase(k *immutable.Composition) error {
	err := s.Within(func() error {
		err := unix.Unmount(k.Root(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// A link on the way, which is not followed, is one that a program in the pod has made.
		for _, none := range []error{unix.EINVAL, unix.ENOENT, unix.ENOTDIR, unix.ELOOP} {
			if errors.Is(err, none) {
				err = nil
			}
		}
		return errors.Join(err, s.forgetApp(k))
	})
	if err != nil {
		return fmt.Errorf("unmount the root of app %s: %w", k.Name, err) // files below a mount must not be removed
	}
	err = k.Delist()
	return errors.Join(err, eraseInTree(k))
}

// eraseInTree removes the files of an app in the pod's tree. A half removed pod has no
// tree.
func eraseInTree(k *immutable.Composition) error {
	name := string(k.Name)
	err := stage1.InTree(k.Dir, func(tree *os.Root) error {
		var err error
		for _, path := range []string{
			k.Stage2(), filepath.Join(stage1.RktInTree, "env", name), filepath.Join(stage1.RktInTree, muxDir, name),
			immutable.Mark(name, immutable.Created), immutable.Mark(name, immutable.Started),
		} {
			err = errors.Join(err, tree.RemoveAll(path))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// exitUnknown is the exit code of app/stop for a unit that is not loaded.
const exitUnknown = 5

// remove removes an app as `rkt app rm` does: by app/stop, by app/rm, and by the removal of
// its files. The app has ended, so app/stop does not wait.
func (s *mutable) remove(ctx context.Context, a *mutableApp, c pod.Call) error {
	k := &immutable.Composition{Dir: c.Dir, Name: types.ACName(c.Request.App)} // `delete` knows no more than this
	if a != nil {
		k = a.made
		s.mu.Lock()
		delete(s.apps, c.Request.App)
		s.mu.Unlock()
		a.end(abi.Status(proc.Killed()))
	}
	return disk.LockManifest(c.Dir, func() error {
		err := s.cross(ctx, c, abi.AppStop)
		if e := (*stage1.EntrypointError)(nil); errors.As(err, &e) && e.Code == exitUnknown {
			err = nil
		}
		return errors.Join(err, s.cross(ctx, c, abi.AppRm), s.erase(k))
	})
}

// cross executes an entrypoint that acts in the pod.
func (s *mutable) cross(ctx context.Context, c pod.Call, e abi.Entrypoint) error {
	c.Request.Entrypoint = e
	return s.Reach(c, func() error { return s.Stage1.Invoke(ctx, c) })
}

// kill kills an app's first process and waits for its end. app/stop is not used, because it
// would give the app a minute and a half. The pod kills the app's other processes by their
// cgroup. In `delete`, where a is nil, the cgroup is used for all of them.
func (s *mutable) kill(ctx context.Context, a *mutableApp) error {
	if a == nil {
		return nil
	}
	c := a.call
	c.Request.Signal, c.Request.Exec = int(unix.SIGKILL), ""
	if err := s.signal(ctx, a, c); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	select {
	case <-a.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("app %s: killed, and its end is not seen: %w", a.made.Name, context.Cause(ctx))
	}
}
