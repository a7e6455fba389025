package disk

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// life is a life with a pod and an app.
type life struct{ crash.Life }

func newLife(t *testing.T) life {
	t.Helper()
	return life{crash.New(t)}
}

func TestOneLife(t *testing.T) {
	current, role, fault := crash.Current(t)
	l := life{current}
	s, err := OpenStore(l.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	s.Fault = fault
	switch role {
	case "collect":
		_, err = (&Collector{Store: s, OpenStage1: l.stage1}).Collect(t.Context(), l.Bundle(), "default", l.ID)
	case "debug":
		err = l.debugged(s)
	default:
		err = l.live(s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// live makes a pod with an app and removes both.
func (l life) live(s *Store) error {
	ctx := context.Background()
	d, err := s.Create(testKey, Stage1Record{Name: "fake"}, nil)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.Path(), abi.StatusDir), 0o755); err != nil {
		return err
	}
	if err := d.Run(); err != nil {
		return err
	}
	sup, err := l.start(s, d.LockFile(), "exec sleep 300")
	if err != nil {
		return err
	}
	if err := errors.Join(d.SetSupervisor(sup), d.ReleaseLock()); err != nil {
		return err
	}
	a, g, err := l.addApp(s, d)
	if err != nil {
		return err
	}
	s.Fault("live")
	if err := errors.Join(g.Kill(ctx), abi.WriteStatus(filepath.Join(d.Path(), abi.StatusDir), a.Name(), "", abi.Status{Code: 7, Time: time.Now()})); err != nil {
		return err
	}
	s.Fault("exited")
	err = errors.Join(Unmount(filepath.Join(l.Bundle(), "rootfs")), g.Remove(ctx), a.Poststop(ctx), a.RemoveFiles())
	if err != nil {
		return err
	}
	release, err := d.Hold()
	if err != nil {
		return err
	}
	defer release()
	s.Fault("held")
	if err := errors.Join(proc.Signal(sup.PID, sup.StartTime, syscall.SIGKILL), d.MarkExited()); err != nil {
		return err
	}
	return errors.Join(d.Remove(ctx), a.RemoveBacklink())
}

func (l life) addApp(s *Store, d *Dir) (*AppDir, *cgroup.Group, error) {
	var spec specs.Spec
	b, err := os.ReadFile(filepath.Join(l.Bundle(), "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		return nil, nil, err
	}
	a, err := d.AddApp(l.ID, l.Bundle(), &spec)
	if err != nil {
		return nil, nil, err
	}
	g, err := l.furnish(s, a, spec.Linux.CgroupsPath)
	return a, g, err
}

// furnish mounts the root of an app, and makes its cgroup and its processes.
func (l life) furnish(s *Store, a *AppDir, cgroupsPath string) (*cgroup.Group, error) {
	rootfs := filepath.Join(a.Record().Bundle, "rootfs")
	err := errors.Join(os.MkdirAll(filepath.Join(rootfs), 0o755), a.Update(func(r *AppRecord) { r.Rootfs = true }),
		unix.Mount("tmpfs", rootfs, "tmpfs", 0, ""), os.Mkdir(filepath.Join(rootfs, "sub"), 0o755),
		unix.Mount("tmpfs", filepath.Join(rootfs, "sub"), "tmpfs", 0, ""))
	if err != nil {
		return nil, err
	}
	s.Fault("mount")
	g, err := cgroup.Maker{}.Create(cgroup.Path{Spec: cgroupsPath}, nil)
	if err != nil {
		return nil, err
	}
	s.Fault("cgroup")
	record := g.Record()
	if err := a.Update(func(r *AppRecord) { r.Cgroup = &record }); err != nil {
		return nil, err
	}
	file := map[int]string{1: "/tasks", 2: "/cgroup.procs"}[g.Version()]
	script := ""
	for _, dir := range g.ABI().Dirs {
		script += "echo 0 > " + dir + file + "; "
	}
	p, err := l.start(s, nil, script+"(sleep 300; :) & echo in; exec sleep 300")
	if err != nil {
		return nil, err
	}
	return g, a.Update(func(r *AppRecord) { r.PID, r.StartTime = p.PID, p.StartTime })
}

// start starts a process that holds lock, if there is one.
func (l life) start(s *Store, lock *os.File, script string) (SupervisorRecord, error) {
	cmd := exec.Command("/bin/sh", "-c", "echo $$ >> "+filepath.Join(l.Base, "pids")+"; "+strings.Replace(script, "echo in;", "echo in; exec >/dev/null;", 1))
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
		cmd.Args[2] = strings.Replace(cmd.Args[2], "exec sleep", "echo in; exec >/dev/null; exec sleep", 1)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return SupervisorRecord{}, err
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		return SupervisorRecord{}, err
	}
	go func() { _ = cmd.Wait() }()
	s.Fault("start")
	at, err := proc.StartTime(cmd.Process.Pid)
	return SupervisorRecord{PID: cmd.Process.Pid, StartTime: at, Leader: cmd.Process.Pid}, err
}

func (l life) stage1(string) (Stage1, error) { return crash.Stopper{}, nil }
