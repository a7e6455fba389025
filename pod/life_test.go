package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// life is what a shim does on disk, with real processes, mounts and cgroups, in
// a process of its own that can be killed at any step of it.
type life struct {
	base string // holds everything: rkt/, bundle/, pids, poststop
	id   string
}

func newLife(t *testing.T) life {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount and to make cgroups")
	}
	l := life{base: t.TempDir(), id: fmt.Sprintf("rkt-test-%d-%d", os.Getpid(), time.Now().UnixNano())}
	if err := os.Mkdir(l.bundle(), 0o755); err != nil {
		t.Fatal(err)
	}
	hook := specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >> " + filepath.Join(l.base, "poststop")}}
	spec := specs.Spec{
		Version: "1.2.0",
		Process: &specs.Process{Args: []string{"sleep", "300"}, Cwd: "/"},
		Root:    &specs.Root{Path: "rootfs"},
		Linux:   &specs.Linux{CgroupsPath: "/" + l.id},
		Hooks:   &specs.Hooks{Poststop: []specs.Hook{hook}},
	}
	b, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.bundle(), "config.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range l.pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = unmountTree(l.base)
		g := cgroup.Path{Spec: "/" + l.id}
		_ = cgroup.RemoveStale(context.Background(), g)
	})
	return l
}

func (l life) bundle() string { return filepath.Join(l.base, "bundle") }

// pids are the processes that were started, supervisors and apps.
func (l life) pids() []int {
	b, _ := os.ReadFile(filepath.Join(l.base, "pids"))
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return pids
}

// dieAt is a Store's fault that kills this process at the n-th step, counted
// from 1.
func dieAt(n int) func(string) {
	return func(string) {
		if n--; n == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// command returns another process that lives until a step.
func (l life) command(role, step string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOneLife$")
	cmd.Env = append(os.Environ(), "POD_LIFE="+role, "POD_LIFE_STEP="+step, "POD_LIFE_BASE="+l.base, "POD_LIFE_ID="+l.id)
	return cmd
}

// haltAt lives in another process that stops for good at a step, and returns
// that process.
func (l life) haltAt(t *testing.T, step string) *os.Process {
	t.Helper()
	cmd := l.command("shim", step+haltSuffix)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it did not get to %q: %v", step, err)
	}
	return cmd.Process
}

// haltSuffix follows the name of a step at which to wait instead of to die.
const haltSuffix = " and halt"

// until lives in another process that is killed at the n-th step, or at the one
// that is named. It returns false if there were not that many.
func (l life) until(t *testing.T, role, step string) bool {
	t.Helper()
	out, err := l.command(role, step).CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return false
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s until %s: %v\n%s", role, step, err, out)
	}
	return true
}

func TestOneLife(t *testing.T) {
	role := os.Getenv("POD_LIFE")
	if role == "" {
		t.Skip("it is the process of other tests")
	}
	l := life{base: os.Getenv("POD_LIFE_BASE"), id: os.Getenv("POD_LIFE_ID")}
	s, err := OpenStore(filepath.Join(l.base, "rkt"))
	if err != nil {
		t.Fatal(err)
	}
	step := os.Getenv("POD_LIFE_STEP")
	if n, err := strconv.Atoi(step); err == nil {
		s.fault = dieAt(n)
	} else {
		s.fault = func(at string) {
			switch step {
			case at:
				dieAt(1)("")
			case at + haltSuffix:
				fmt.Println(at)
				select {}
			}
		}
	}
	switch role {
	case "collect":
		_, err = (&Collector{Store: s, OpenStage1: l.stage1}).Collect(t.Context(), l.bundle(), "default", l.id)
	case "sandbox":
		err = l.liveInSandbox(t, s)
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
	d, err := s.Create(testKey, Stage1Record{Name: "fake"})
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
	s.fault("live")
	if err := errors.Join(g.Kill(ctx), abi.WriteStatus(filepath.Join(d.Path(), abi.StatusDir), a.Name(), "", abi.Status{Code: 7, Time: time.Now()})); err != nil {
		return err
	}
	s.fault("exited")
	err = errors.Join(unmountAll(filepath.Join(l.bundle(), "rootfs")), g.Remove(ctx), a.Poststop(ctx), a.removeFiles())
	if err != nil {
		return err
	}
	release, err := d.hold()
	if err != nil {
		return err
	}
	defer release()
	s.fault("held")
	if err := errors.Join(proc.Signal(sup.PID, sup.StartTime, syscall.SIGKILL), d.MarkExited()); err != nil {
		return err
	}
	return errors.Join(d.Remove(ctx), a.backlink().remove())
}

func (l life) addApp(s *Store, d *Dir) (*AppDir, *cgroup.Group, error) {
	var spec specs.Spec
	b, err := os.ReadFile(filepath.Join(l.bundle(), "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		return nil, nil, err
	}
	a, err := d.AddApp(AppID(l.id), l.bundle(), &spec)
	if err != nil {
		return nil, nil, err
	}
	rootfs := filepath.Join(l.bundle(), "rootfs")
	err = errors.Join(os.MkdirAll(filepath.Join(rootfs), 0o755), a.Update(func(r *AppRecord) { r.Rootfs = true }),
		unix.Mount("tmpfs", rootfs, "tmpfs", 0, ""), os.Mkdir(filepath.Join(rootfs, "sub"), 0o755),
		unix.Mount("tmpfs", filepath.Join(rootfs, "sub"), "tmpfs", 0, ""))
	if err != nil {
		return nil, nil, err
	}
	s.fault("mount")
	g, err := cgroup.Maker{}.Create(cgroup.Path{Spec: spec.Linux.CgroupsPath}, nil)
	if err != nil {
		return nil, nil, err
	}
	s.fault("cgroup")
	record := g.Record()
	if err := a.Update(func(r *AppRecord) { r.Cgroup = &record }); err != nil {
		return nil, nil, err
	}
	file := map[int]string{1: "/tasks", 2: "/cgroup.procs"}[g.Version()]
	script := ""
	for _, dir := range g.ABI().Dirs {
		script += "echo 0 > " + dir + file + "; "
	}
	p, err := l.start(s, nil, script+"(sleep 300; :) & echo in; exec sleep 300")
	if err != nil {
		return nil, nil, err
	}
	return a, g, a.Update(func(r *AppRecord) { r.PID, r.StartTime = p.PID, p.StartTime })
}

// start starts a process that holds lock, if there is one.
func (l life) start(s *Store, lock *os.File, script string) (SupervisorRecord, error) {
	cmd := exec.Command("/bin/sh", "-c", "echo $$ >> "+filepath.Join(l.base, "pids")+"; "+strings.Replace(script, "echo in;", "echo in; exec >/dev/null;", 1))
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
	s.fault("start")
	at, err := proc.StartTime(cmd.Process.Pid)
	return SupervisorRecord{PID: cmd.Process.Pid, StartTime: at, Leader: cmd.Process.Pid}, err
}

// stopper is a stage1 of which only what `delete` calls is there. Its stop ends
// the supervisor that is on record.
type stopper struct {
	Stage1
	dir   string
	calls *[]abi.Entrypoint
	hang  bool
}

func (l life) stage1(dir string) (Stage1, error) { return stopper{dir: dir}, nil }

func (stopper) Has(abi.Entrypoint) bool { return true }
func (stopper) Attach(string) error     { return nil }
func (stopper) Detach(string) error     { return nil }

func (s stopper) Invoke(ctx context.Context, c Call) error {
	if s.calls != nil {
		*s.calls = append(*s.calls, c.Request.Entrypoint)
	}
	if s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if c.Request.Entrypoint == abi.Stop && c.Leader != 0 {
		return syscall.Kill(c.Leader, syscall.SIGKILL) // a test's own child
	}
	return nil
}
