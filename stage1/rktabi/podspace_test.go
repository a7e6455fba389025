package rktabi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestWhatAPodOfRktsHasForAllIsRefusedToWhoAsksForMore(t *testing.T) {
	stage1test.RequireRoot(t)
	// The pod's first process has lost a capability.
	leader := exec.Command("setpriv", "--bounding-set=-sys_chroot", "sleep", "1000")
	if err := leader.Start(); err != nil {
		t.Skip("needs setpriv: ", err)
	}
	t.Cleanup(func() { _ = leader.Process.Kill(); _ = leader.Wait() })
	const sysChroot = 1 << 18
	wait.Until(t, "it has lost the capability", func() bool {
		set, err := boundingSet(leader.Process.Pid)
		return err == nil && set&sysChroot == 0
	})
	s := stage1Of(t, stage1test.Image{Annotations: map[string]string{abi.AnnotationVersion: "6"}})
	m := &mutable{adapter: &adapter{InSpace: immutable.NewInSpace(s)}}
	m.run = &immutable.Launched{Call: &stage1.Call{Call: pod.Call{Spec: &spec.App{OCI: specs.Spec{Hostname: "one"}}}}}
	capabilities := func(set ...string) *specs.Spec {
		return &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: set}}}
	}
	for name, c := range map[string]struct {
		spec    *specs.Spec
		refused string
		field   string
	}{
		"no hostname":       {&specs.Spec{}, "", ""},
		"the same hostname": {&specs.Spec{Hostname: "one"}, "", ""},
		"another hostname":  {&specs.Spec{Hostname: "two"}, `the pod has the one of its first app, "one", and cannot get "two"`, "/hostname"},
		"capabilities":      {capabilities("CAP_CHOWN", "CAP_KILL"), "", ""},
		"one that is lost":  {capabilities("CAP_CHOWN", "CAP_SYS_CHROOT"), "no app of the pod can have CAP_SYS_CHROOT", "/process/capabilities"},
	} {
		s.Abide(stage1.Rules{})
		err := m.fits(c.spec, leader.Process.Pid)
		if c.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.field+": "+c.refused) {
			t.Errorf("%s: %v, want %s: %s", name, err, c.field, c.refused)
		}
		s.Abide(stage1.Rules{Excused: []string{c.field}})
		if err := m.fits(c.spec, os.Getpid()); err != nil {
			t.Errorf("%s, though it is accepted: %v", name, err)
		}
	}
}

func TestAPodsProcessIsNotTheMachinesFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), immutable.PidFile)
	for text, want := range map[string]int{"1\n": 0, "0\n": 0, "-1\n": 0, "7\n": 7} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid, err := immutable.ReadPID(file); pid != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", text, pid, err)
		}
	}
}
