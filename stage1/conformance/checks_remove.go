package conformance

import (
	"context"
	"errors"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// removeChecks are about app/stop and app/rm.
func removeChecks() []Check {
	check := func(id, sentence string, needs abi.Entrypoint, run func(context.Context, *barePod) error) Check {
		return Check{
			ID: id, Level: LevelRun, Section: "5 " + string(needs), Sentence: sentence, mutable: true, needs: []abi.Entrypoint{needs},
			run: func(ctx context.Context, t *trial) error {
				b := must(t.runningPod(ctx))
				return run(ctx, b)
			},
		}
	}
	return []Check{
		check("app-stop/living", "app/stop ends an app that runs", abi.AppStop, func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}),
		check("app-stop/created", "app/stop ends an app that was never started", abi.AppStop, func(ctx context.Context, b *barePod) error {
			a := must(b.add(ctx, "app", nil, "wait"))
			try(codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0))
			must(a.ended(ctx))
			return nil
		}),
		check("app-stop/ended", "app/stop of an app that has ended succeeds", abi.AppStop, func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return codeOf("app/stop", a.invoke(ctx, abi.AppStop), 0)
		}),
		check("app-stop/unknown", "app/stop of an app that never was returns 5", abi.AppStop, func(ctx context.Context, b *barePod) error {
			return codeOf("app/stop", b.invoke(ctx, abi.AppStop, "nobody"), abi.ExitNotFound)
		}),
		check("app-rm/living", "app/rm of an app that runs returns 6, and the app runs on", abi.AppRm, func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(codeOf("app/rm", a.invoke(ctx, abi.AppRm), abi.ExitFailedPrecondition))
			if !proc.Alive(a.PID, a.StartTime) {
				return errors.New("app/rm has ended the app")
			}
			return nil
		}),
		check("app-rm/ended", "app/rm of an app that has ended succeeds, and again", abi.AppRm, func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "exit", "0"))
			must(a.ended(ctx))
			return errors.Join(codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0), codeOf("the second app/rm", a.invoke(ctx, abi.AppRm), 0))
		}),
		check("app-rm/unknown", "app/rm of an app that never was succeeds", abi.AppRm, func(ctx context.Context, b *barePod) error {
			return codeOf("app/rm", b.invoke(ctx, abi.AppRm, "nobody"), 0)
		}),
	}
}
