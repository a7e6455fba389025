package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func start(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	_, task, err := find(ctx, client, "start", args)
	if err != nil {
		return 0, err
	}
	return 0, task.Start(ctx)
}

// state prints the state as the OCI spec defines it.
func state(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	container, task, err := find(ctx, client, "state", args)
	if err != nil {
		return 0, err
	}
	labels, err := container.Labels(ctx)
	if err != nil {
		return 0, err
	}
	spec, err := container.Spec(ctx)
	if err != nil {
		return 0, err
	}
	status, err := task.Status(ctx)
	if err != nil {
		return 0, err
	}
	s := specs.State{
		Version: spec.Version, ID: container.ID(), Status: specs.ContainerState(status.Status),
		Bundle: labels[bundleLabel], Annotations: spec.Annotations,
	}
	if s.Status != specs.StateStopped {
		s.Pid = int(task.Pid())
	}
	return 0, json.NewEncoder(os.Stdout).Encode(s)
}

func kill(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	id, rest, err := parse(newFlags("kill"), args)
	if err != nil {
		return 0, err
	}
	_, task, err := load(ctx, client, id)
	if err != nil {
		return 0, err
	}
	signal := "TERM"
	if len(rest) > 0 {
		signal = rest[0]
	}
	number := unix.SignalNum("SIG" + strings.TrimPrefix(signal, "SIG"))
	if number == 0 {
		return 0, fmt.Errorf("unknown signal %q", signal)
	}
	return 0, task.Kill(ctx, number)
}

func remove(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	container, task, err := find(ctx, client, "delete", args)
	if err != nil {
		return 0, err
	}
	if _, err := task.Delete(ctx); err != nil {
		return 0, err
	}
	return 0, container.Delete(ctx)
}

// execute runs a further process with this process's streams, and returns its exit code.
func execute(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	flags := newFlags("exec")
	file := flags.String("process", "", "file with the process, as in config.json")
	id, _, err := parse(flags, args)
	if err != nil {
		return 0, err
	}
	var process specs.Process
	if err := readJSON(*file, &process); err != nil {
		return 0, err
	}
	_, task, err := load(ctx, client, id)
	if err != nil {
		return 0, err
	}
	running, err := task.Exec(ctx, fmt.Sprintf("exec-%d", os.Getpid()), &process, cio.NewCreator(cio.WithStdio))
	if err != nil {
		return 0, err
	}
	defer running.Delete(ctx, containerd.WithProcessKill)
	exited, err := running.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if err := running.Start(ctx); err != nil {
		return 0, err
	}
	status := <-exited
	running.IO().Wait()
	return int(status.ExitCode()), status.Error()
}

func update(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	flags := newFlags("update")
	file := flags.String("resources", "", "file with resources, as in config.json")
	id, _, err := parse(flags, args)
	if err != nil {
		return 0, err
	}
	var resources specs.LinuxResources
	if err := readJSON(*file, &resources); err != nil {
		return 0, err
	}
	_, task, err := load(ctx, client, id)
	if err != nil {
		return 0, err
	}
	return 0, task.Update(ctx, containerd.WithResources(&resources))
}

func readJSON(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}
