package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

// patience is the time limit of a sample, and of steps that are not measured. Machines that are emulated
// on a busy host need the second one.
const (
	patience     = 30 * time.Second
	longPatience = 5 * time.Minute
)

// rig is the containerd in which everything runs, in a private directory.
type rig struct {
	dir      string
	subjects []subject
	daemon   *daemon.Daemon
	meter    *meter
	client   *containerd.Client
	image    containerd.Image
	serial   atomic.Int64
	testprog string
	machines *machines // nil: no subject is a stage1 of machines

	runcShims string // directory of runc's shim
}

// openRig starts a containerd with all subjects. The shims are a copy of bin, because a build
// may replace bin meanwhile. All files are below TMPDIR.
func openRig(ctx context.Context, bin, accel string, subjects []subject) (_ *rig, err error) {
	r := &rig{subjects: subjects}
	if r.dir, err = os.MkdirTemp("", "rkt-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	programs, err := binaries.Containerd(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	r.runcShims = programs
	if err := r.takeShims(ctx, bin, programs); err != nil {
		return nil, err
	}
	env := []string{"RKT_DATA_DIR=" + r.dataDir()}
	if r.has(virtual) {
		if r.machines, err = newMachines(ctx, r, accel); err != nil {
			return nil, err
		}
		env = append(env, "RKT_CONFIG="+r.machines.config)
	}
	r.daemon, err = daemon.Start(ctx, daemon.Options{
		Dir:       filepath.Join(r.dir, "d"),
		Programs:  programs,
		Shims:     []string{r.shims()},
		Env:       env,
		Namespace: fmt.Sprintf("rkt-bench-%d", os.Getpid()),
		LogLevel:  "info", // at the level debug each shim would do further work
	})
	if err != nil {
		return nil, err
	}
	if r.meter, err = newMeter(r.daemon.Namespace(), r.daemon.PID()); err != nil {
		return nil, err
	}
	if r.client, err = r.daemon.Client(); err != nil {
		return nil, err
	}
	return r, r.importImage(ctx)
}

// takeShims copies bin, after it has checked that all subjects have a shim.
func (r *rig) takeShims(ctx context.Context, bin, programs string) error {
	for _, s := range r.subjects {
		dir := bin
		switch {
		case s.name == floor:
			continue
		case s.runtime == runcShim:
			dir = programs
		}
		if _, err := os.Stat(filepath.Join(dir, s.shim())); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", bin, r.shims()).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", bin, err, out)
	}
	for _, s := range r.subjects {
		if err := r.addProgram(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// addProgram builds what a subject needs and make build does not build.
func (r *rig) addProgram(ctx context.Context, s subject) error {
	switch {
	case s.name == floor:
		return binaries.NullShim(ctx, r.shims())
	case s.binary == "runc-current":
		path, err := binaries.Runc(ctx, os.Stderr)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(r.shims(), s.binary)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// has reports whether there is a subject of a name.
func (r *rig) has(name string) bool {
	return slices.ContainsFunc(r.subjects, func(s subject) bool { return s.name == name })
}

func (r *rig) patience() time.Duration {
	if r.machines != nil {
		return longPatience
	}
	return patience
}

func (r *rig) shims() string   { return filepath.Join(r.dir, "bin") }
func (r *rig) dataDir() string { return filepath.Join(r.dir, "rkt") }
func (r *rig) fifoDir() string { return filepath.Join(r.dir, "fifo") }

func (r *rig) importImage(ctx context.Context) error {
	var err error
	if r.testprog, err = binaries.TestProgram(ctx, r.dir); err != nil {
		return err
	}
	images, err := r.images()
	if err != nil {
		return err
	}
	archive := filepath.Join(r.dir, "image.tar")
	if err := image.WriteFile(archive, images...); err != nil {
		return err
	}
	if out, err := r.daemon.Ctr(ctx, "image", "import", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import the image: %w: %s", err, out)
	}
	r.image, err = r.client.GetImage(r.namespaced(ctx), image.BusyboxName)
	return err
}

// images returns the image of all containers.
func (r *rig) images() ([]image.Image, error) {
	images, err := image.Test(r.testprog)
	return slices.DeleteFunc(images, func(i image.Image) bool { return i.Name != image.BusyboxName }), err
}

// namespaced adds the namespace that the client's calls need.
func (r *rig) namespaced(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.daemon.Namespace())
}

// id returns a container id that was not used before.
func (r *rig) id(s subject) string {
	return fmt.Sprintf("%s-%d", s.name, r.serial.Add(1))
}

// scope describes everything of the rig that can be found on the machine.
func (r *rig) scope() leaks.Scope {
	s := leaks.Scope{Dir: r.dir, Namespace: r.daemon.Namespace(), Except: []int{r.daemon.PID(), os.Getpid()}, Empty: []string{
		r.fifoDir(),
		r.daemon.Bundle(""),
	}}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		s.Empty = append(s.Empty, filepath.Join(r.dataDir(), "pods", state))
	}
	return s
}

// awaitQuiet waits until no shim of earlier samples is left, so that its work is not part of
// the next sample.
func (r *rig) awaitQuiet(ctx context.Context) error {
	return r.await(ctx, "the shims end with their last container", func() ([]string, error) {
		left, err := r.scope().Remains()
		return leaks.Only(left, "process"), err
	})
}

// await polls until remains finds nothing.
func (r *rig) await(ctx context.Context, what string, remains func() ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	for {
		left, err := remains()
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; there are still\n\t%s", what, ctx.Err(), strings.Join(left, "\n\t"))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
