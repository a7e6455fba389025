package pod

import (
	"context"
	"sync"
)

// endDebugs ends the debug apps of a target, or all of the pod if target is nil, and waits for
// that. Errors are logged: a collector removes the rest.
func (p *Pod) endDebugs(ctx context.Context, target *app) {
	p.mu.Lock()
	var ending []*DebugApp
	for d := range p.debugs {
		if target == nil || d.target == target {
			ending = append(ending, d)
		}
	}
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, d := range ending {
		all.Go(func() {
			if err := d.end(ctx); err != nil {
				d.target.log(ctx, err).Warn("a debug app is left behind")
			}
		})
	}
	all.Wait()
}
