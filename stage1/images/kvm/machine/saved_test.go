package machine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// savable boots or restores machines with one directory of saved machines.
type savable struct {
	*testing.T
	saved  string
	change func(*machine.Config)
	log    bytes.Buffer // of the last one
	booted bool         // the last one has booted
}

func newSavable(t *testing.T) *savable {
	return &savable{T: t, saved: filepath.Join(t.TempDir(), "saved")}
}

func (s *savable) boot() *guest {
	s.Helper()
	c, g := config(s.T)
	s.booted = false
	s.log.Reset()
	c.Saved, c.Log = s.saved, &s.log
	c.Booted = func(context.Context) error {
		s.booted = true
		g.Machine = unended{}
		g.expect("hello")
		return nil
	}
	if s.change != nil {
		s.change(&c)
	}
	m, err := machine.Boot(s.Context(), c)
	if err != nil {
		s.Fatal(err)
	}
	g.run(m)
	return g
}

// unended stands for the machine that Boot has not returned yet.
type unended struct{ machine.Machine }

func (unended) Done() <-chan struct{} { return nil }

// boots boots a machine, which is to be saved.
func (s *savable) boots() *guest {
	s.Helper()
	g := s.boot()
	if !s.booted || s.log.Len() > 0 {
		s.Errorf("the machine has booted: %t; the log: %s", s.booted, s.log.String())
	}
	return g
}

// restores restores a machine.
func (s *savable) restores() *guest {
	s.Helper()
	g := s.boot()
	if s.booted || s.log.Len() > 0 {
		s.Errorf("the machine has booted: %t; the log: %s", s.booted, s.log.String())
	}
	return g
}

// files returns the saved machines' files with a name.
func (s *savable) files(name string) []string {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.saved, "*", name))
	if err != nil {
		s.Fatal(err)
	}
	return files
}

func TestAMachineIsRestoredFromOneThatHasBooted(t *testing.T) {
	s := newSavable(t)
	dir := ""
	s.change = func(c *machine.Config) { dir = share(t, c) }
	for _, begin := range []func() *guest{s.boots, s.restores, s.restores} {
		g := begin()
		// What the first one does with its share is not saved. The guest sees the share soon after.
		write(t, filepath.Join(dir, "file"), dir)
		g.ask("mkdir", "/pod")
		wait.Until(t, "the guest has mounted the share", func() bool { return g.ask("mount", "pod", "/pod", "virtiofs") == "" })
		if got := g.ask("read", "/pod/file"); got != dir {
			t.Errorf("the guest reads %q", got)
		}
		expectNoFiles(t, g.PID())
	}
	if got := s.files("memory"); len(got) != 1 {
		t.Errorf("%q are saved", got)
	}
	// Another one has another size.
	s.change = func(c *machine.Config) { dir = share(t, c); c.CPUs = 2 }
	if got := s.boots().ask("cpus"); got != "2" {
		t.Errorf("the guest has %s processors", got)
	}
	if got := s.restores().ask("cpus"); got != "2" {
		t.Errorf("the restored guest has %s processors", got)
	}
}

func TestARestoredMachineGrows(t *testing.T) {
	s := newSavable(t)
	s.change = func(c *machine.Config) { c.MaxCPUs, c.MaxMemory = 2, 512<<20 }
	s.boots()
	g := s.restores()
	if got := g.ask("load", "virtio_mem"); got != "" {
		t.Fatal(got)
	}
	before := memory(t, g)
	if err := g.Resize(t.Context(), 2, 512<<20); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "the guest uses the memory", func() (bool, string) {
		now := memory(t, g)
		return now > before+200<<10, fmt.Sprint(now, " kB, before ", before)
	})
	wait.Until(t, "the guest has the processor", func() bool { return g.ask("write", "/sys/devices/system/cpu/cpu1/online", "1") == "" })
}

func TestMachinesBootAfterOneThatWasForgotten(t *testing.T) {
	s := newSavable(t)
	if err := s.boots().Forget(); err != nil {
		t.Error(err)
	}
	if err := s.restores().Forget(); err != nil {
		t.Error(err)
	}
	if got := s.files("*"); len(got) > 0 {
		t.Errorf("%q are saved", got)
	}
	s.boots()
}

func TestASavedMachineThatQEMUDoesNotTakeIsForgotten(t *testing.T) {
	s := newSavable(t)
	s.boots()
	for _, file := range s.files("state") {
		if err := os.Truncate(file, 1000); err != nil {
			t.Fatal(err)
		}
	}
	s.boot()
	if log := s.log.String(); !s.booted || !strings.Contains(log, "restore a saved machine") || !strings.Contains(log, "load of migration failed") {
		t.Errorf("the machine has booted: %t; the log: %s", s.booted, log)
	}
	if got := s.files("*"); len(got) > 0 {
		t.Errorf("%q are saved", got)
	}
	s.boots()
	s.restores()
}

// A process that was killed while it removed a saved machine leaves a part.
func TestAHalfOfASavedMachineIsReplaced(t *testing.T) {
	s := newSavable(t)
	for _, file := range []string{"state", "memory"} {
		s.boots()
		for _, f := range s.files(file) {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		s.boots()
		s.restores()
		if err := os.RemoveAll(s.saved); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASavedMachineWhoseMemoryCannotBeReadIsForgotten(t *testing.T) {
	s := newSavable(t)
	s.boots()
	for _, f := range s.files("memory") {
		if err := errors.Join(os.Remove(f), os.Mkdir(f, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	s.boot()
	if log := s.log.String(); !s.booted || strings.Count(log, "copy the memory of a saved machine") != 1 {
		t.Errorf("the machine has booted: %t; the log: %s", s.booted, log)
	}
	s.boots()
	s.restores()
}

func TestMachinesAreSavedWhereOnlyRootWrites(t *testing.T) {
	s := newSavable(t)
	if err := os.Mkdir(s.saved, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.saved, 0o777); err != nil {
		t.Fatal(err)
	}
	s.boot()
	if log := s.log.String(); !s.booted || !strings.Contains(log, "only root may write there") {
		t.Errorf("the machine has booted: %t; the log: %s", s.booted, log)
	}
	if got := s.files("*"); len(got) > 0 {
		t.Errorf("%q are saved", got)
	}
}

// A process that was killed while it saved a machine leaves its files, and no lock.
func TestAMachineIsSavedByOneAtATime(t *testing.T) {
	s := newSavable(t)
	left := filepath.Join(s.saved, "new")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(left, "state"), "a half")
	lock, err := os.Create(filepath.Join(s.saved, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s.boots()
	if got := s.files("memory"); len(got) > 0 {
		t.Errorf("%q are saved", got)
	}
	lock.Close()
	s.boots()
	s.restores()
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s is left", left)
	}
}

// memoryCgroup makes a memory cgroup, and returns the names of the files that have its use and its limit.
func memoryCgroup(t *testing.T) (cgroup, use, limit string) {
	t.Helper()
	above, use, limit := "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes" // of version 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		above, use, limit = "/sys/fs/cgroup", "memory.current", "memory.max"
	}
	cgroup = filepath.Join(above, "rkt-machine-saved-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the machine has ended
		wait.Observe(t, "the cgroup can be removed", func() (bool, string) {
			err := unix.Rmdir(cgroup)
			return err == nil, fmt.Sprint(err)
		})
	})
	use, limit = filepath.Join(cgroup, use), filepath.Join(cgroup, limit)
	if _, err := os.Stat(use); err != nil {
		t.Skipf("no memory cgroup: %v", err)
	}
	return cgroup, use, limit
}

// The kernel charges memory to the cgroup of the process that writes it first.
func TestTheMemoryOfARestoredMachineIsChargedToItsCgroup(t *testing.T) {
	s := newSavable(t)
	s.boots()
	cgroup, use, _ := memoryCgroup(t)
	s.change = func(c *machine.Config) { c.Cgroup = []string{cgroup} }
	s.restores()
	text, err := os.ReadFile(use)
	if err != nil {
		t.Fatal(err)
	}
	if used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil || used < 64<<20 {
		t.Errorf("%d bytes are charged to the cgroup: %v", used, err)
	}
}

func TestAPodWithoutMemoryTakesNoSavedMachineFromOthers(t *testing.T) {
	s := newSavable(t)
	s.boots()
	cgroup, _, limit := memoryCgroup(t)
	write(t, limit, strconv.Itoa(48<<20))
	c, _ := config(t)
	c.Saved, c.Cgroup = s.saved, []string{cgroup}
	c.Booted = func(context.Context) error { t.Error("it boots"); return nil }
	if m, err := machine.Boot(t.Context(), c); err == nil {
		t.Error("a machine was restored in 48 MiB")
		_ = m.Stop(context.Background())
	}
	s.restores()
}
