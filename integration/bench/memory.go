package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

const (
	// podsForMemory are measured together: they share the pages of their
	// binaries, as the pods of a machine do.
	podsForMemory = 10
	// furtherContainers is the number of containers that are added to one of these pods.
	furtherContainers = 10
)

// measureMemory reads the memory of pods without their containers' own processes. It waits
// before it reads, because runtimes give memory back late.
func measureMemory(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	err := b.fill(ctx, fmt.Sprintf("%d pods of one container", podsForMemory), podsForMemory, func(i int) string {
		return fmt.Sprintf("memory-%d", i)
	})
	if err != nil {
		return err
	}
	before, err := b.readMemory(ctx)
	if err != nil {
		return err
	}
	err = b.fill(ctx, fmt.Sprintf("%d containers more in one of them", furtherContainers), furtherContainers, func(int) string {
		return "memory-0"
	})
	if err != nil {
		return err
	}
	after, err := b.readMemory(ctx)
	if err != nil {
		return err
	}
	for _, s := range b.subjects {
		b.results.add(opPSS, s.name, before[s].pss/podsForMemory)
		b.results.add(opAnonymous, s.name, before[s].anonymous/podsForMemory)
		b.results.add(opFurtherPSS, s.name, (after[s].pss-before[s].pss)/furtherContainers)
		b.results.add(opFurtherAnonymous, s.name, (after[s].anonymous-before[s].anonymous)/furtherContainers)
	}
	return b.clear(ctx)
}

// measureUsed reads the memory of pods whose containers have executed programs.
func measureUsed(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	tasks, err := b.pods(ctx)
	if err != nil {
		return err
	}
	done := 0
	for _, after := range []struct {
		execs int
		op    operation
	}{{50, opUsedPSS}, {2000, opMuchUsedPSS}} {
		n := after.execs - done
		step, finish := b.progress.begin(fmt.Sprintf("%d execs in each of them", n), n)
		for i := range n {
			step(i)
			for _, s := range b.subjects {
				if err := b.undisturbed(ctx, func(ctx context.Context) error { return execTrue(ctx, tasks[s], b.id(s)) }); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		finish()
		done = after.execs
		used, err := b.readMemory(ctx)
		if err != nil {
			return err
		}
		for _, s := range b.subjects {
			b.results.add(after.op, s.name, used[s].pss)
		}
	}
	return b.clear(ctx)
}

// fill starts n containers per subject, in the groups that group names.
func (b *bench) fill(ctx context.Context, title string, n int, group func(int) string) error {
	step, done := b.progress.begin(title, n)
	defer done()
	for i := range n {
		step(i)
		for _, s := range b.subjects {
			err := b.undisturbed(ctx, func(ctx context.Context) error {
				_, err := b.running(ctx, s, s.name+"-"+group(i))
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// readMemory waits until the pods are at rest, and reads their memory.
func (b *bench) readMemory(ctx context.Context) (map[subject]memory, error) {
	if err := b.leaveAlone(ctx); err != nil {
		return nil, err
	}
	all := map[subject]memory{}
	for _, s := range b.subjects {
		pids, err := b.overhead(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, pid := range pids {
			m, err := memoryOf(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			all[s] = memory{all[s].pss + m.pss, all[s].anonymous + m.anonymous}
		}
	}
	return all, nil
}

func (b *bench) leaveAlone(ctx context.Context) error {
	seconds := int(b.settle / time.Second)
	step, done := b.progress.begin("leaving them alone for "+b.settle.String(), seconds)
	defer done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := time.After(b.settle)
	for i := 0; ; i++ {
		step(min(i, seconds))
		select {
		case <-tick.C:
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// overhead lists the processes of a subject's pods that are not in containers: the shims and
// their descendants.
func (b *bench) overhead(s subject) ([]int, error) {
	found, err := b.shimPIDs(s)
	if err != nil {
		return nil, err
	}
	below, err := descendants(found)
	return slices.DeleteFunc(append(found, below...), b.scope().Contained), err
}

// shimPIDs lists the shims of a subject that serve: those whose parent is not a process of this
// subject.
func (b *bench) shimPIDs(s subject) ([]int, error) {
	pids, err := b.scope().Processes()
	if err != nil {
		return nil, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		return !s.owns(leaks.CommandLine(pid))
	})
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process is a %s", s.shim())
	}
	return pids, nil
}
