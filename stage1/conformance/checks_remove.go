package conformance

import (
	"context"
	"errors"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// removeChecks are about app/stop and app/rm.
func removeChecks() []Check {
	return []Check{
		inPod("app-stop/living", "5 app/stop", "app/stop ends an app that runs", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}, abi.AppStop),
		inPod("app-stop/created", "5 app/stop", "app/stop ends an app that was never started", func(ctx context.Context, b *barePod) error {
			a := must(b.add(ctx, "app", nil, "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}, abi.AppStop),
		inPod("app-stop/ended", "5 app/stop", "app/stop of an app that has ended succeeds", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0)
		}, abi.AppStop),
		inPod("app-stop/unknown", "5 app/stop", "app/stop of an app that never was returns 5", func(ctx context.Context, b *barePod) error {
			return codeOf("app/stop", b.invoke(ctx, abi.AppStop, "nobody"), abi.ExitNotFound)
		}, abi.AppStop),
		inPod("app-rm/living", "5 app/rm", "app/rm of an app that runs returns 6, and the app runs on", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/rm", a.invoke(ctx, abi.AppRm), abi.ExitFailedPrecondition))
			if !proc.Alive(a.PID, a.StartTime) {
				return errors.New("app/rm has ended the app")
			}
			return nil
		}, abi.AppRm),
		inPod("app-rm/ended", "5 app/rm", "app/rm of an app that has ended succeeds, and again", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return errors.Join(codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0), codeOf("the second app/rm", a.invoke(ctx, abi.AppRm), 0))
		}, abi.AppRm),
		inPod("app-rm/unknown", "5 app/rm", "app/rm of an app that never was succeeds", func(ctx context.Context, b *barePod) error {
			return codeOf("app/rm", b.invoke(ctx, abi.AppRm, "nobody"), 0)
		}, abi.AppRm),
	}
}
