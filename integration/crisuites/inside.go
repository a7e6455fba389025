package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// inside runs a node of one handler, a registry and the suite.
func inside(o options) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	handlers, err := columnsNamed(o.columns)
	if err != nil {
		return 0, err
	}
	su, err := suiteNamed(o.suite)
	if err != nil {
		return 0, err
	}
	images, err := newRegistry(su)
	if err != nil {
		return 0, err
	}
	proxy, err := registry.Serve(images)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	network, err := proxy.Environment(caFile)
	if err != nil {
		return 0, err
	}
	opts := node.Options{
		Dir: nodeDir, Programs: programsDir, Shims: []string{shimsDir}, Env: network,
		Handlers: handlers, Default: handlers[0].Name,
	}
	if handlers[0].Runtime == machines.Runtime {
		config, err := machines.Configure(shimsDir, machinesDir)
		if err != nil {
			return 0, err
		}
		opts.Env = append(opts.Env, "RKT_CONFIG="+config)
	}
	if err := su.prepare(&opts, handlers[0]); err != nil {
		return 0, err
	}
	n, err := node.Start(ctx, opts)
	if err != nil {
		return 0, err
	}
	defer keep(ctx, n)()
	return execute(ctx, su.command(n, handlers[0].Name, o), network)
}

// absence is the time for which containerd stays away, so that a suite notices that it has
// ended: the suite looks once a second.
const absence = 3 * time.Second

// keep starts the node's containerd again whenever the suite has ended it. stop ends that, and
// containerd.
func keep(ctx context.Context, n *node.Node) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.Ended():
				time.Sleep(absence)
				if err := n.Resume(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "containerd does not come back:", err)
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-kept
		if err := n.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// execute runs a suite, and writes its output to a file. The suite may pull images and start
// programs like the node does.
func execute(ctx context.Context, command, environment []string) (code int, err error) {
	out, err := os.Create(outputFile)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = suiteDir
	path := strings.Join([]string{wrappedDir, shimsDir, programsDir, os.Getenv("PATH")}, ":")
	cmd.Env = append(append(os.Environ(), environment...), "PATH="+path)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, out), os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}
