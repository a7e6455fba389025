package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// transferred is the number of bytes of a file that is read or written.
const transferred = 64 << 20

// measureFiles reads and writes files in containers of machines, in a volume and on a root that is a
// disk, beside native.
func measureFiles(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	volume := filepath.Join(b.dir, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		return err
	}
	tasks := map[string]containerd.Task{}
	for _, name := range []string{virtual, native} {
		err := b.undisturbed(ctx, func(ctx context.Context) (err error) {
			s := b.subject(name)
			tasks[name], err = b.runningWith(ctx, s, s.name, oci.WithProcessArgs(sleeper()...), oci.WithMounts([]specs.Mount{
				{Destination: "/volume", Type: "bind", Source: volume, Options: []string{"bind", "rw"}},
			}))
			return err
		})
		if err != nil {
			return err
		}
	}
	var all []sampler
	for _, column := range []struct{ name, subject string }{{virtual, virtual}, {reference, native}} {
		all = append(all, sampler{column.name, func(ctx context.Context, record recorder) error {
			if err := b.measureVolume(ctx, tasks[column.subject], volume, record); err != nil {
				return err
			}
			return b.measureDisk(ctx, b.subject(column.subject), record)
		}})
	}
	if err := b.turns(ctx, fmt.Sprintf("files of %d MB", transferred>>20), b.rounds(), 1, all...); err != nil {
		return err
	}
	return b.clear(ctx)
}

// measureVolume reads a file that the host has just written, and writes one.
func (b *bench) measureVolume(ctx context.Context, task containerd.Task, volume string, record recorder) error {
	// A name that no machine knows: its kernel has no page of the file.
	name := strconv.FormatInt(b.serial.Add(1), 10)
	file := filepath.Join(volume, name)
	if err := os.WriteFile(file, make([]byte, transferred), 0o644); err != nil {
		return err
	}
	err := b.measureTransfers(ctx, task, "/volume/"+name, transfers{opVolumeRead, opVolumeReadCPU, opVolumeWrite, opVolumeWriteCPU}, record)
	return errors.Join(err, os.Remove(file), os.Remove(file+"-written"))
}

// transfers names the operations of which reading and writing are samples.
type transfers struct{ read, readCPU, write, writeCPU operation }

// measureTransfers reads a file of a container and writes another one.
func (b *bench) measureTransfers(ctx context.Context, task containerd.Task, file string, ops transfers, record recorder) error {
	for _, t := range []struct {
		how, file string
		took, cpu operation
	}{{"read", file, ops.read, ops.readCPU}, {"write", file + "-written", ops.write, ops.writeCPU}} {
		used, err := b.meter.settled(ctx)
		if err != nil {
			return err
		}
		out, err := b.output(ctx, task, "testprog", "transfer", t.how, t.file, strconv.Itoa(transferred))
		if err != nil {
			return err
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
		if err != nil {
			return fmt.Errorf("%s %s: %w", t.how, t.file, err)
		}
		now, err := b.meter.settled(ctx)
		if err != nil {
			return err
		}
		record(t.took, transferred/1e6/seconds)
		record(t.cpu, (now.cpu-used.cpu)/(transferred/1e9))
	}
	return nil
}

// measureDisk does the same on a root that is an image of ext4: a disk of the machine, or a loop device of
// the host.
func (b *bench) measureDisk(ctx context.Context, s subject, record recorder) (err error) {
	image, err := b.diskImage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(image)) }()
	c, err := b.client.NewContainer(ctx, b.id(s), containerd.WithRuntime(s.runtime, s.options()), containerd.WithNewSpec(
		oci.WithProcessArgs("testprog", "sleep", "100000"), oci.WithEnv([]string{"PATH=/bin"}), oci.WithAnnotations(map[string]string{groupAnnotation: s.name})))
	if err != nil {
		return err
	}
	task, err := c.NewTask(ctx, cio.NullIO, containerd.WithRootFS([]mount.Mount{{Type: "ext4", Source: image, Options: []string{"loop", "rw"}}}))
	if err != nil {
		return err
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return err
	}
	if err := b.measureTransfers(ctx, task, "/data", transfers{opDiskRead, opDiskReadCPU, opDiskWrite, opDiskWriteCPU}, record); err != nil {
		return err
	}
	if err := end(ctx, task, exited); err != nil {
		return err
	}
	return c.Delete(ctx)
}

// diskImage makes an image of ext4 with the test program and a file.
func (b *bench) diskImage(ctx context.Context) (string, error) {
	tree := filepath.Join(b.dir, "tree")
	if _, err := os.Stat(tree); errors.Is(err, os.ErrNotExist) {
		for _, d := range []string{"bin", "proc", "sys", "dev", "run", "tmp"} {
			if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
				return "", err
			}
		}
		program, err := os.ReadFile(b.testprog)
		if err != nil {
			return "", err
		}
		err = errors.Join(os.WriteFile(filepath.Join(tree, "bin/testprog"), program, 0o755), os.WriteFile(filepath.Join(tree, "data"), make([]byte, transferred), 0o644))
		if err != nil {
			return "", err
		}
	}
	image := filepath.Join(b.dir, "image-"+strconv.FormatInt(b.serial.Add(1), 10))
	size := strconv.Itoa(4*transferred>>20) + "M"
	if out, err := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-d", tree, image, size).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	return image, nil
}
