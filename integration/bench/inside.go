package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// measureInside compares further containers and execs of a running machine with fork and exec by hand
// in the same machine.
func measureInside(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	s := b.subject(virtual)
	var task containerd.Task
	err := b.undisturbed(ctx, func(ctx context.Context) (err error) {
		// Only a program with all capabilities may make namespaces.
		task, err = b.runningWith(ctx, s, s.name, oci.WithProcessArgs(sleeper()...), oci.WithAllCurrentCapabilities)
		return err
	})
	if err != nil {
		return err
	}
	ops := lifetime{opCreate, opStart, opCreateStart, opCreateStartCPU, opEnd, opEndCPU}
	err = b.turns(ctx, "containers and execs in a running machine", b.rounds(), 1,
		sampler{virtual, func(ctx context.Context, record recorder) error {
			if err := b.measureLifetime(ctx, s, s.name, ops, record); err != nil {
				return err
			}
			return b.measureExec(ctx, task, b.id(s), record)
		}},
		sampler{reference, func(ctx context.Context, record recorder) error {
			if err := b.measureByHand(ctx, task, "namespaces", opCreateStart, opCreateStartCPU, record); err != nil {
				return err
			}
			return b.measureByHand(ctx, task, "plain", opExec, opExecCPU, record)
		}})
	if err != nil {
		return err
	}
	return b.clear(ctx)
}

// Forks of one sample by hand. The processor time of one is the difference of a run with few and a run
// with many, because the run is itself an exec. A run before them brings the programs into the
// machine's memory.
const (
	fewForks  = 4
	manyForks = 24
)

// measureByHand has the test program, in a container, fork, execute true and wait. It measures the time
// itself.
func (b *bench) measureByHand(ctx context.Context, task containerd.Task, how string, took, cpu operation, record recorder) error {
	if _, err := b.output(ctx, task, "testprog", "forks", strconv.Itoa(fewForks), how, "/bin/true"); err != nil {
		return err
	}
	var used [2]float64
	for i, n := range []int{fewForks, manyForks} {
		before, err := b.meter.settled(ctx)
		if err != nil {
			return err
		}
		out, err := b.output(ctx, task, "testprog", "forks", strconv.Itoa(n), how, "/bin/true")
		if err != nil {
			return err
		}
		after, err := b.meter.settled(ctx)
		if err != nil {
			return err
		}
		used[i] = after.cpu - before.cpu
		if n != manyForks {
			continue
		}
		ms, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			return err
		}
		record(took, ms)
	}
	record(cpu, (used[1]-used[0])/(manyForks-fewForks))
	return nil
}

// output executes a program in a container and returns what it has written to its output.
func (b *bench) output(ctx context.Context, task containerd.Task, args ...string) (string, error) {
	spec, err := task.Spec(ctx)
	if err != nil {
		return "", err
	}
	process := *spec.Process
	process.Args = args
	var out, said bytes.Buffer
	id := "output-" + strconv.FormatInt(b.serial.Add(1), 10)
	p, err := task.Exec(ctx, id, &process, cio.NewCreator(cio.WithStreams(nil, &out, &said), cio.WithFIFODir(b.fifoDir())))
	if err != nil {
		return "", err
	}
	exited, err := p.Wait(ctx)
	if err != nil {
		return "", err
	}
	if err := p.Start(ctx); err != nil {
		return "", err
	}
	status := <-exited
	p.IO().Wait()
	if _, err := p.Delete(ctx); err != nil {
		return "", err
	}
	if code, _, err := status.Result(); err != nil || code != 0 {
		return "", fmt.Errorf("%s ended with code %d: %w: %s", strings.Join(args, " "), code, err, &said)
	}
	return out.String(), nil
}
