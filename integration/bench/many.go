package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	atOnce         = 10
	manyPods       = 200
	manyContainers = 100
	// compared is how many of the first and of the last ones are compared.
	compared = 10
)

// measureTogether takes several pods of one container from Create to Delete at once.
func measureTogether(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	n := max(1, b.samples/5) // each sample has ten pods
	return b.alternate(ctx, fmt.Sprintf("%d pods at once", atOnce), n, func(ctx context.Context, s subject, record recorder) error {
		var groups [atOnce]string
		for i := range groups {
			groups[i] = b.id(s)
		}
		used, err := b.meter.settled(ctx)
		if err != nil {
			return err
		}
		ended := make(chan error, atOnce)
		begin := time.Now()
		for _, group := range groups {
			go func() { ended <- b.live(ctx, s, group) }()
		}
		for range groups {
			err = errors.Join(err, <-ended)
		}
		record(opTogether, milliseconds(begin))
		if err != nil {
			return err
		}
		if err := b.awaitQuiet(ctx); err != nil {
			return err
		}
		_, err = b.spent(ctx, opTogetherCPU, used, record)
		return err
	})
}

// measureMany compares the processor time of the last of many pods with that of the first, and
// the same for the containers of one pod.
func measureMany(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	err := b.grow(ctx, fmt.Sprintf("%d pods", manyPods), manyPods, opManyPods, func(s subject, i int) string {
		return fmt.Sprintf("%s-many-%d", s.name, i)
	})
	if err != nil {
		return err
	}
	return b.grow(ctx, fmt.Sprintf("%d containers in one pod", manyContainers), manyContainers, opManyContainers, func(s subject, _ int) string {
		return s.name
	})
}

// grow starts n containers per subject, in the groups that group names, and records what the
// last ones have used, beside the first ones.
func (b *bench) grow(ctx context.Context, title string, n int, op operation, group func(subject, int) string) error {
	step, done := b.progress.begin(title, n)
	defer done()
	used := map[string][]float64{}
	for i := range n + 1 { // the first one warms up, and makes the pod
		step(min(i, n-1))
		for _, s := range b.subjects {
			err := undisturbed(ctx, func(ctx context.Context) error {
				before, err := b.meter.settled(ctx)
				if err != nil {
					return err
				}
				if _, err := b.running(ctx, s, group(s, i)); err != nil {
					return err
				}
				_, err = b.spent(ctx, op, before, func(_ operation, value float64) { used[s.name] = append(used[s.name], value) })
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	for _, s := range b.subjects {
		u := used[s.name]
		b.results.add(op, s.name, median(u[len(u)-compared:])/median(u[1:1+compared]))
	}
	return b.clear(ctx)
}
