package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// enter is the first process of an enclosure: it executes this program once more,
// and reaps what shims leave to it.
func enter() (code int, err error) {
	if err := enclosure.Enter(); err != nil {
		return 0, err
	}
	for name, value := range map[string]string{
		suiteVariable: "1",
		"TMPDIR":      "/tmp", // another may be covered
		// CNI's plugins execute what is in the last two.
		"PATH": strings.Join([]string{os.Getenv("PATH"), "/usr/sbin", "/sbin"}, ":"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	status, err := enclosure.Exec(enclosure.Program{
		Path:   "/proc/self/exe",
		Args:   slices.Concat([]string{"critest"}, os.Args[1:]),
		Env:    os.Environ(),
		Dir:    "/",
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	if status.Signaled() {
		return 128 + int(status.Signal()), err
	}
	return status.ExitStatus(), err
}

// runSuite runs a node of one handler, with a registry beside it, and the suite.
func runSuite(o options) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	handlers, err := columnsNamed(o.columns)
	if err != nil {
		return 0, err
	}
	images, err := newRegistry()
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
	n, err := node.Start(ctx, node.Options{
		Dir: nodeDir, Programs: programsDir, Shims: []string{shimsDir}, Env: network,
		Handlers: handlers, Default: handlers[0].Name,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	cmd := exec.CommandContext(ctx, filepath.Join(suiteDir, "critest"), suiteArgs(n, handlers[0].Name, o)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func suiteArgs(n *node.Node, handler string, o options) []string {
	return []string{
		"-runtime-endpoint=" + n.Endpoint(),
		"-runtime-handler=" + handler,
		"-ginkgo.json-report=" + reportFile,
		"-ginkgo.seed=1", // which is the order
		"-ginkgo.no-color",
		"-ginkgo.focus=" + o.focus,
		// An image of a fixed digest can only be the original, and the shell of
		// Debian's busybox does not look for an ls that is masked.
		"-ginkgo.skip=public image with digest|runtime should support MaskedPaths",
		fmt.Sprintf("-ginkgo.timeout=%s", o.timeout),
		fmt.Sprintf("-test.timeout=%s", o.timeout),
	}
}
