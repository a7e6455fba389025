package local_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// lifeVariable has the command that a process of this test binary executes, and stepVariable the
// number of the step at which the process is killed.
const (
	lifeVariable = "LOCAL_LIFE"
	stepVariable = "LOCAL_STEP"
)

func itoa(n int) string { return strconv.Itoa(n) }

// oneLife executes a command and is killed at a step.
func oneLife() int {
	f := strings.Split(os.Getenv(lifeVariable), "|") // command, data directory, bin, rootfs, cgroup, stage1, CNI, pod
	suite.bin, suite.rootfs, suite.cgroup = f[2], f[3], f[4]
	s := openStore(f[1])
	if f[6] != "" {
		s.CNIConfig, s.CNIPlugins, s.Network = f[6], []string{f[6]}, "podnet"
	}
	last, _ := strconv.Atoi(os.Getenv(stepVariable))
	step := 0
	s.Fault = func(what string) {
		if step++; step == last {
			fmt.Println(what)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		}
	}
	ctx := context.Background()
	var err error
	switch f[0] {
	case "sandbox":
		_, err = s.Create(ctx, local.PodConfig{Stage1: f[5], Injectable: true})
	case "run":
		_, err = s.Create(ctx, local.PodConfig{Stage1: f[5], Apps: []local.AppConfig{config("web", "exec sleep 1000")}})
	default:
		var p *local.Pod
		if p, err = s.Open(f[7]); err == nil {
			switch f[0] {
			case "add":
				err = p.Add(ctx, config("web", "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done"))
			case "start":
				err = p.Start(ctx, "web")
			case "stop":
				err = p.Stop(ctx, "web", time.Minute)
			case "delete":
				err = p.Delete(ctx, "web", time.Minute)
			case "remove":
				err = p.Remove(ctx, true)
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// killedAt executes a command in a process that is killed at a step. done reports that the
// command has ended before that step.
func (b *box) killedAt(step int, command, uuid string) (name string, done bool) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), stepVariable+"="+itoa(step),
		lifeVariable+"="+strings.Join([]string{command, b.DataDir, suite.bin, suite.rootfs, suite.cgroup, b.stage1, b.CNIConfig, uuid}, "|"))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", true
	}
	if cmd.ProcessState.ExitCode() >= 0 {
		b.Fatalf("%s: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out)), false
}

// rktctl is killed at each step of each command. The state on disk is one of the proposal's, and
// the command, called again, or rm, leads to where it should.
func TestAKilledCommandIsContinuedByTheNext(t *testing.T) {
	ctx := context.Background()
	commands := map[string]struct {
		states []local.State // that a kill may leave
		before func(p *pod)
		after  func(t *testing.T, p *pod, name string)
	}{
		"add": {
			states: []local.State{local.Preparing, local.Prepared},
			after: func(t *testing.T, p *pod, _ string) {
				if err := p.Pod.Delete(ctx, "web", 0); err != nil {
					t.Error(err)
				}
				p.add("web", "exec sleep 1000")
				p.start("web")
			},
		},
		"start": {
			states: []local.State{local.Prepared, local.Running},
			before: func(p *pod) { p.add("web", "exec sleep 1000") },
			after: func(t *testing.T, p *pod, _ string) {
				p.start("web")
				if st := p.expect("web", local.Running); st.StartedAt.Before(st.CreatedAt) {
					t.Errorf("%+v", st)
				}
			},
		},
		"stop": {
			states: []local.State{local.Stopping, local.Exited},
			before: func(p *pod) {
				p.add("web", "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
				p.start("web")
				p.awaitLog("web", "up\n")
			},
			after: func(t *testing.T, p *pod, _ string) {
				if err := p.Stop(ctx, "web", soon()); err != nil {
					t.Error(err)
				}
				if st := p.expect("web", local.Exited); *st.ExitCode != 4 {
					t.Errorf("%+v", st)
				}
			},
		},
		"delete": {
			states: []local.State{local.Deleting},
			before: func(p *pod) {
				p.add("web", "trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
				p.start("web")
				p.awaitLog("web", "up\n")
			},
			after: func(t *testing.T, p *pod, _ string) {
				for what, err := range map[string]error{
					"start": p.Start(ctx, "web"), "stop": p.Stop(ctx, "web", 0), "add": p.Pod.Add(ctx, config("web", "true")),
				} {
					if err == nil || !strings.Contains(err.Error(), "deleting") && !errdefs.IsNotFound(err) && what != "add" {
						t.Errorf("%s of an app that is being removed: %v", what, err)
					}
				}
				if err := p.Pod.Delete(ctx, "web", 0); err != nil && !errdefs.IsNotFound(err) {
					t.Error(err)
				}
				if _, err := p.Pod.Status(ctx, "web"); !errdefs.IsNotFound(err) {
					t.Errorf("status: %v", err)
				}
			},
		},
	}
	for command, c := range commands {
		t.Run(command, func(t *testing.T) {
			b := newBox(t, "native")
			for step := 1; ; step++ {
				p := b.sandbox()
				if c.before != nil {
					c.before(p)
				}
				name, done := b.killedAt(step, command, p.UUID())
				if done {
					if step < 2 {
						t.Error("no step")
					}
					break
				}
				st, err := p.Pod.Status(ctx, "web")
				gone := errdefs.IsNotFound(err) && command == "delete"
				known := false
				for _, s := range c.states {
					known = known || st.State == s
				}
				if !gone && (err != nil || !known) {
					t.Errorf("killed at %q: %s, %v; want one of %s", name, st.State, err, c.states)
				}
				if !gone {
					c.after(t, p, name)
				}
				if err := p.Remove(ctx, true); err != nil {
					t.Errorf("killed at %q: %v", name, err)
				}
			}
		})
	}
}

// A pod whose creation or removal was killed is removed by the next creation.
func TestAPodThatIsNotFinishedIsRemovedByTheNextCreation(t *testing.T) {
	for _, command := range []string{"sandbox", "run", "remove"} {
		t.Run(command, func(t *testing.T) {
			b := newBox(t, "native")
			calls := b.withCNI()
			for step := 1; ; step++ {
				uuid := ""
				if command == "remove" {
					p := b.sandbox()
					p.add("web", "exec sleep 1000")
					p.start("web")
					uuid = p.UUID()
				}
				name, done := b.killedAt(step, command, uuid)
				next := b.sandbox()
				for _, u := range b.uuids() {
					p, err := b.Open(u)
					if err != nil {
						t.Fatal(err)
					}
					if u != next.UUID() && !(command != "remove" && (done || name == "ready")) {
						t.Errorf("killed at %q: %s is left", name, u)
					}
					if err := p.Remove(context.Background(), false); err != nil {
						t.Errorf("killed at %q: %v", name, err)
					}
				}
				if done {
					break
				}
			}
			for line := range strings.Lines(calls()) {
				if deleted := strings.Replace(line, "ADD", "DEL", 1); !strings.Contains(calls(), deleted) {
					t.Errorf("%s has no %s", line, deleted)
				}
			}
		})
	}
}
