package main

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
)

const (
	manyPods       = 200
	manyContainers = 100
	// compared is how many samples of a first one and of a last one are compared.
	compared = 20
)

// growth names what the n-th pod, container or exec uses in proportion to the first one.
type growth struct {
	title     string
	n         int
	all, ours operation // of everything, and without containerd
}

// measureMany compares the processor time of a pod when there are none and when there are many, and
// the same for the containers of one pod. The runtimes do not take turns: only the pods of the
// runtime that is measured are there.
func measureMany(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	for _, s := range b.subjects {
		pods := growth{fmt.Sprintf("%d pods of %s", manyPods, s.name), manyPods, opManyPods, opManyPodsOurs}
		if err := b.grow(ctx, s, pods, 0, func() string { return b.id(s) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		containers := growth{fmt.Sprintf("%d containers in a pod of %s", manyContainers, s.name), manyContainers, opManyContainers, opManyContainersOurs}
		if err := b.grow(ctx, s, containers, 1, func() string { return s.name }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// grow compares Create + Start of a subject's n-th container with the same after only so many as there
// are before the first samples. group returns the group of the next container. Each sample removes
// its container, so that all samples are of the same number.
func (b *bench) grow(ctx context.Context, s subject, g growth, before int, group func() string) error {
	step, done := b.progress.begin(g.title, g.n)
	defer done()
	fill := func(from, to int) error {
		for i := from; i < to; i++ {
			step(i)
			err := undisturbed(ctx, func(ctx context.Context) error { _, err := b.running(ctx, s, group()); return err })
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(0, before); err != nil {
		return err
	}
	sample := func(ctx context.Context) (use, error) { return b.useOfOne(ctx, s, group()) }
	first, err := b.uses(ctx, sample)
	if err != nil {
		return err
	}
	if err := fill(before, g.n-1); err != nil {
		return err
	}
	last, err := b.uses(ctx, sample)
	if err != nil {
		return err
	}
	b.compare(s, g, first, last)
	if err := b.clear(ctx); err != nil {
		return err
	}
	return b.awaitQuiet(ctx)
}

// useOfOne returns what Create and Start of a container use, and removes the container.
func (b *bench) useOfOne(ctx context.Context, s subject, group string) (use, error) {
	c, err := b.container(ctx, s, group, sleeper()...)
	if err != nil {
		return use{}, err
	}
	before, err := b.meter.settled(ctx)
	if err != nil {
		return use{}, err
	}
	task, err := started(ctx, c)
	if err != nil {
		return use{}, err
	}
	after, err := b.meter.settled(ctx)
	if err != nil {
		return use{}, err
	}
	return after.since(before), b.finish(ctx, c, task)
}

// manyExecs is how many execs a container gets.
const manyExecs = 10_000

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
	g := growth{fmt.Sprintf("%d execs in a container of %s", manyExecs, s.name), manyExecs, opManyExecs, opManyExecsOurs}
	step, done := b.progress.begin(g.title, g.n)
	defer done()
	var task containerd.Task
	err := undisturbed(ctx, func(ctx context.Context) (err error) {
		task, err = b.running(ctx, s, s.name)
		return err
	})
	if err != nil {
		return err
	}
	sample := func(ctx context.Context) (use, error) { return b.useOfExec(ctx, task, b.id(s)) }
	first, err := b.uses(ctx, sample)
	if err != nil {
		return err
	}
	for i := len(first) + warmUps; i < g.n-compared-warmUps; i++ {
		step(i)
		if err := undisturbed(ctx, func(ctx context.Context) error { return execTrue(ctx, task, b.id(s)) }); err != nil {
			return err
		}
	}
	last, err := b.uses(ctx, sample)
	if err != nil {
		return err
	}
	b.compare(s, g, first, last)
	return nil
}

func (b *bench) useOfExec(ctx context.Context, task containerd.Task, id string) (use, error) {
	before, err := b.meter.settled(ctx)
	if err != nil {
		return use{}, err
	}
	if err := execTrue(ctx, task, id); err != nil {
		return use{}, err
	}
	after, err := b.meter.settled(ctx)
	return after.since(before), err
}

// warmUps is how many samples are not recorded before those that are.
const warmUps = 2

// uses takes the samples of a first or of a last one.
func (b *bench) uses(ctx context.Context, sample func(context.Context) (use, error)) ([]use, error) {
	var all []use
	for i := range warmUps + compared {
		err := undisturbed(ctx, func(ctx context.Context) error {
			u, err := sample(ctx)
			if i >= warmUps {
				all = append(all, u)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compare records each of the last ones in proportion to the median of the first ones.
func (b *bench) compare(s subject, g growth, first, last []use) {
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
}
