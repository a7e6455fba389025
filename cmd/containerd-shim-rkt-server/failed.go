package main

import (
	"context"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// recordOf returns the record of a choice.
func recordOf(c config.Choice) *disk.Stage1Record {
	return &disk.Stage1Record{Name: c.Name, By: string(c.By), Excused: c.Accept}
}

// startFailed keeps a record of a `start` that has failed.
func startFailed(f manager.FailedStart) {
	keepFailure(context.Background(), disk.FailedStart{
		Step: disk.StepServer, Daemon: f.Address, Namespace: f.Namespace, Error: f.Err.Error(),
		Starts: []disk.Start{{Time: time.Now(), ID: f.ID, Bundle: f.Bundle}},
	})
}

// keepFailure writes a record of a failed start. Nothing depends on the record, so an error,
// such as that of a full disk, is only logged.
func keepFailure(ctx context.Context, f disk.FailedStart) {
	if err := disk.KeepFailure(dataDir(), f); err != nil {
		log.G(ctx).WithError(err).Warn("rktctl why will not know of this start")
	}
}
