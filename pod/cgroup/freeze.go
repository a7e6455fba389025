package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// freezeLimit is how long a cgroup may take to freeze. It cannot freeze while one of its
// processes is in an uninterruptible sleep.
const freezeLimit = 5 * time.Second

// Pauses between two writes of FROZEN on version 1. Each is twice as long as the one
// before, up to lastFreezePause. Version 1 announces nothing: if processes fork or sleep,
// the cgroup stays FREEZING until FROZEN is written again at the right moment.
const (
	firstFreezePause = 50 * time.Microsecond
	lastFreezePause  = 10 * time.Millisecond
)

// Freeze stops every process in the cgroup and below, and returns when the
// kernel says that all are stopped. A process that enters later is stopped when it
// enters. On failure the processes continue as before.
func (g *Group) Freeze(ctx context.Context) error {
	dir := g.Dir("freezer")
	if dir == "" {
		return fmt.Errorf("freeze cgroup %s: the freezer cgroup is not mounted", g.Path())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freezeLimit, fmt.Errorf("not all of its processes stopped within %s", freezeLimit))
	defer cancel()
	freeze := freezeV1
	if g.record.Version == 2 {
		freeze = freezeV2
	}
	if err := freeze(ctx, dir); err != nil {
		return errors.Join(fmt.Errorf("freeze cgroup %s: %w", g.Path(), err), g.Thaw())
	}
	return nil
}

// Thaw lets the processes run again. Cgroups below that the processes have frozen themselves
// stay frozen.
func (g *Group) Thaw() error {
	dir := g.Dir("freezer")
	if dir == "" {
		return nil
	}
	file, value := filepath.Join(dir, "freezer.state"), "THAWED"
	if g.record.Version == 2 {
		file, value = filepath.Join(dir, "cgroup.freeze"), "0"
	}
	if err := write(file, value); err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.Path(), err)
	}
	return nil
}

// Frozen reports whether the processes are stopped or being stopped, by this or by another
// program. On version 2 it reads the requested state, because processes stay stopped for a
// moment after they were thawed. On a host with both versions, a container may have frozen its cgroup of version 2.
func (g *Group) Frozen() bool {
	dir := g.Dir("freezer")
	if g.record.Version == 2 {
		return frozenV2(dir)
	}
	if g.record.UnifiedMade && frozenV2(g.record.Unified) {
		return true
	}
	if dir == "" {
		return false
	}
	state, err := proc.ReadOnce(filepath.Join(dir, "freezer.state"))
	return err == nil && strings.TrimSpace(string(state)) != "THAWED"
}

func frozenV2(dir string) bool {
	asked, err := readNumber(filepath.Join(dir, "cgroup.freeze"))
	return err == nil && asked == 1
}

// LetDie thaws a cgroup whose processes were sent SIGKILL, so that they end. On version 2
// frozen processes end without that. On version 1 they end only when the cgroup and all
// cgroups below it are thawed.
func (g *Group) LetDie() error {
	if g.record.Version == 2 {
		return nil
	}
	return g.thawAll()
}

// freezeV1 writes FROZEN until the kernel reports that the cgroup is frozen.
func freezeV1(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "freezer.state")
	for wait := firstFreezePause; ; wait = min(2*wait, lastFreezePause) {
		if err := proc.WriteFile(file, "FROZEN"); err != nil {
			return err
		}
		state, err := proc.ReadOnce(file)
		if err != nil || strings.TrimSpace(string(state)) == "FROZEN" {
			return err
		}
		if err := proc.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// freezeV2 writes 1 once and waits for the kernel's event.
func freezeV2(ctx context.Context, dir string) error {
	if err := proc.WriteFile(filepath.Join(dir, "cgroup.freeze"), "1"); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer f.Close()
	return awaitChange(ctx, f, func(text []byte) (bool, error) {
		return keyed(text)["frozen"] == 1, nil
	})
}
