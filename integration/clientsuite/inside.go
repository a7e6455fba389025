package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// inside runs the suite of one column, with a registry and a collector of calls.
func inside(o options) (code int, err error) {
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return 0, err
	}
	if err := columns[0].configure(); err != nil {
		return 0, err
	}
	images, err := newRegistry(ncProgram)
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
	collector, err := collectCalls()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, collector.close(callsFile)) }()

	return enclosure.Exec(enclosure.Program{
		Path:   filepath.Join(suiteDir, "client.test"),
		Args:   suiteArgs(o),
		Env:    columns[0].environment(append(network, collector.environment()...)...),
		Dir:    suiteDir,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
}

func suiteArgs(o options) []string {
	return []string{
		"client.test",
		"-test.root",
		"-test.v=test2json",
		"-test.paniconexit0",
		fmt.Sprintf("-test.timeout=%s", o.timeout),
		"-test.run=" + o.run,
	}
}
