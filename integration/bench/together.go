package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const atOnce = 10

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
