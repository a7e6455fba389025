package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// reference is the column of what machines are compared with.
const reference = "reference"

// machineChapters are the chapters of -machines.
func machineChapters() []chapter {
	return []chapter{
		{"boot", measureBoots},
		{"inside", measureInside},
		{"resident", measureResident},
		{"files", measureFiles},
		{"network", measureNetwork},
	}
}

// subject returns the subject of a name, which must be there.
func (r *rig) subject(name string) subject {
	for _, s := range r.subjects {
		if s.name == name {
			return s
		}
	}
	panic("no subject " + name)
}

// rounds is the number of samples of what takes seconds.
func (b *bench) rounds() int { return max(1, b.samples/5) }

// measureBoots compares a pod of one container with a bare boot.
func measureBoots(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	if err := b.undisturbed(ctx, b.compareArguments); err != nil {
		return err
	}
	return b.turns(ctx, "machines from their boot to their end", b.rounds(), 1,
		sampler{virtual, func(ctx context.Context, record recorder) error {
			if err := b.measureMachine(ctx, record); err != nil {
				return err
			}
			return b.awaitQuiet(ctx)
		}},
		sampler{virtual, func(ctx context.Context, record recorder) error {
			if err := b.measureSaved(ctx, record); err != nil {
				return err
			}
			return b.awaitQuiet(ctx)
		}},
		sampler{reference, b.measureBareBoot})
}

// measureMachine takes a pod of one container from Create to Delete.
func (b *bench) measureMachine(ctx context.Context, record recorder) error {
	task, exited, err := b.measureBegin(ctx, record, begin{opReady, opReadyCPU, opFirst, opFirstCPU})
	if err != nil {
		return err
	}
	used, err := b.meter.settled(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := end(ctx, task, exited); err != nil {
		return err
	}
	record(opLastEnd, milliseconds(begin))
	if err := b.clear(ctx); err != nil {
		return err
	}
	_, err = b.spent(ctx, opLastEndCPU, used, record)
	return err
}

// measureSaved begins a pod of one container with a saved machine.
func (b *bench) measureSaved(ctx context.Context, record recorder) error {
	operations := begin{opSavedReady, opSavedReadyCPU, opSavedFirst, opSavedFirstCPU}
	_, _, err := b.measureBegin(ctx, record, operations, withSaved())
	if err != nil {
		return err
	}
	return b.clear(ctx)
}

// withSaved gives a pod a saved machine.
func withSaved() oci.SpecOpts {
	return oci.WithAnnotations(map[string]string{"io.containerd.rkt.v1/stage1": savedStage1})
}

// begin are the operations from the Create of a new pod: until it is ready, and until its container runs.
type begin struct{ ready, readyCPU, first, firstCPU operation }

// measureBegin takes a pod of one container from Create to the end of Start.
func (b *bench) measureBegin(ctx context.Context, record recorder, op begin, opts ...oci.SpecOpts) (containerd.Task, <-chan containerd.ExitStatus, error) {
	s := b.subject(virtual)
	c, err := b.containerWith(ctx, s, b.id(s), append(opts, oci.WithProcessArgs(sleeper()...))...)
	if err != nil {
		return nil, nil, err
	}
	used, err := b.meter.settled(ctx)
	if err != nil {
		return nil, nil, err
	}
	begin := time.Now()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ready := make(chan error, 1)
	go func() {
		err := b.awaitRun(watching)
		took := milliseconds(begin)
		now, e := b.meter.cpu.read()
		if err = errors.Join(err, e); err == nil {
			record(op.ready, took)
			record(op.readyCPU, now-used.cpu)
		}
		ready <- err
	}()
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		stop()
		return nil, nil, errors.Join(err, <-ready)
	}
	if err := <-ready; err != nil {
		return nil, nil, err
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := task.Start(ctx); err != nil {
		return nil, nil, err
	}
	record(op.first, milliseconds(begin))
	_, err = b.spent(ctx, op.firstCPU, used, record)
	return task, exited, err
}

// awaitRun waits until the journal of the only pod says that run is ready.
func (b *bench) awaitRun(ctx context.Context) error {
	for {
		files, err := filepath.Glob(filepath.Join(b.dataDir(), "pods/run/*/journal"))
		if err != nil {
			return err
		}
		for _, f := range files {
			text, _ := os.ReadFile(f) // the pod may have failed, and is removed
			for line := range bytes.Lines(text) {
				var e struct{ Entrypoint, State string }
				if json.Unmarshal(line, &e) == nil && e.Entrypoint == "run" && e.State == "ready" {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("run is not ready: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// measureBareBoot takes a bare machine from its boot to its end.
func (b *bench) measureBareBoot(ctx context.Context, record recorder) error {
	used, err := b.meter.settled(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	m, err := b.bootBare(ctx)
	if err != nil {
		return err
	}
	took := milliseconds(begin)
	now, err := b.meter.cpu.read()
	if err == nil {
		for _, op := range []operation{opReady, opFirst, opSavedReady, opSavedFirst} {
			record(op, took)
		}
		for _, op := range []operation{opReadyCPU, opFirstCPU, opSavedReadyCPU, opSavedFirstCPU} {
			record(op, now-used.cpu)
		}
	}
	return errors.Join(err, m.close())
}

// compareArguments returns an error unless a pod and a bare boot have the same command line of QEMU.
func (b *bench) compareArguments(ctx context.Context) error {
	s := b.subject(virtual)
	if _, err := b.running(ctx, s, s.name); err != nil {
		return err
	}
	pods, err := b.machineProcesses(s)
	if err != nil {
		return err
	}
	m, err := b.bootBare(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(sameArguments(pods.qemu, m.qemu), m.close())
	return errors.Join(err, b.clear(ctx))
}
