package main

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
)

const (
	manyPods       = 200
	manyContainers = 100
	manyExecs      = 10_000
	// compared is how many of the first ones and of the last ones are compared.
	compared = 20
	// warmUps is how many come before the first one.
	warmUps = 2
)

// growth names what the n-th pod, container or exec uses in proportion to the first one.
type growth struct {
	title     string
	n         int
	all, ours operation // of everything, and without containerd
}

// measureMany compares the processor time of the last of many pods with that of the first, and the
// same for the containers of one pod. The runtimes do not take turns: only the pods of the runtime
// that is measured are there.
func measureMany(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	for _, s := range b.subjects {
		pods := growth{fmt.Sprintf("%d pods of %s", manyPods, s.name), manyPods, opManyPods, opManyPodsOurs}
		if err := b.grow(ctx, s, pods, func() string { return b.id(s) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		containers := growth{fmt.Sprintf("%d containers in a pod of %s", manyContainers, s.name), manyContainers, opManyContainers, opManyContainersOurs}
		if err := b.grow(ctx, s, containers, func() string { return s.name }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// grow makes n containers of a subject, in the groups that group returns, and compares Create + Start of
// the last ones with that of the first ones. Nothing is removed meanwhile, because containerd collects its
// garbage after a removal, and looks at all containers then.
func (b *bench) grow(ctx context.Context, s subject, g growth, group func() string) error {
	err := b.growBy(ctx, s, g, func(ctx context.Context) (func() error, error) {
		c, err := b.container(ctx, s, group(), sleeper()...)
		return func() error { _, err := started(ctx, c); return err }, err
	})
	if err != nil {
		return err
	}
	if err := b.clear(ctx); err != nil {
		return err
	}
	return b.awaitQuiet(ctx)
}

// growBy does something n times, and records what each of the last times uses in proportion to the median
// of the first times. prepare returns what is measured.
func (b *bench) growBy(ctx context.Context, s subject, g growth, prepare func(context.Context) (func() error, error)) error {
	step, done := b.progress.begin(g.title, g.n)
	defer done()
	var first, last []use
	for i := range warmUps + g.n {
		step(max(0, i-warmUps))
		err := b.undisturbed(ctx, func(ctx context.Context) error {
			do, err := prepare(ctx)
			if err != nil {
				return err
			}
			switch {
			case i < warmUps+compared:
				first, err = b.appendUse(ctx, first, do)
			case i >= warmUps+g.n-compared:
				last, err = b.appendUse(ctx, last, do)
			default:
				err = do()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	first = first[warmUps:]
	for op, of := range map[operation]func(use) float64{
		g.all:  func(u use) float64 { return u.cpu },
		g.ours: use.ours,
	} {
		var base []float64
		for _, u := range first {
			base = append(base, of(u))
		}
		for _, u := range last {
			b.results.add(op, s.name, of(u)/median(base))
		}
	}
	return nil
}

// appendUse appends what do uses.
func (b *bench) appendUse(ctx context.Context, uses []use, do func() error) ([]use, error) {
	before, err := b.meter.settled(ctx)
	if err != nil {
		return uses, err
	}
	if err := do(); err != nil {
		return uses, err
	}
	after, err := b.meter.settled(ctx)
	return append(uses, after.since(before)), err
}

// measureManyExecs compares the processor time of the last of many execs of a container with that of
// the first. It leaves the baseline out, because no budget is relative to it, and it would take
// several minutes.
func measureManyExecs(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	for _, s := range b.subjects {
		if s.name == baseline {
			continue
		}
		if err := b.growExecs(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return b.clear(ctx)
}

func (b *bench) growExecs(ctx context.Context, s subject) error {
	var task containerd.Task
	err := b.undisturbed(ctx, func(ctx context.Context) (err error) {
		task, err = b.running(ctx, s, s.name)
		return err
	})
	if err != nil {
		return err
	}
	g := growth{fmt.Sprintf("%d execs in a container of %s", manyExecs, s.name), manyExecs, opManyExecs, opManyExecsOurs}
	return b.growBy(ctx, s, g, func(ctx context.Context) (func() error, error) {
		return func() error { return execTrue(ctx, task, b.id(s)) }, nil
	})
}
