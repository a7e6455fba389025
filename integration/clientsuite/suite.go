package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

// run is a finished run of the suite with one column.
type run struct {
	column  column
	results results
	calls   calls
	answers rpcs.Answers // only if all tests have run
	log     string       // output of the suite and its containerd that belongs to no test
}

// execute runs the suite in an enclosure below dir, and calls done for every test.
func (c column) execute(ctx context.Context, o options, p programs, dir string, done func(test string, res *result)) (run, error) {
	r := run{column: c, results: results{}, log: filepath.Join(dir, c.name+".log")}
	log, err := os.Create(r.log)
	if err != nil {
		return r, err
	}
	defer log.Close()
	e := enclosure.Enclosure{
		Dir:    filepath.Join(dir, c.name),
		Args:   o.inside(c),
		Stderr: log,
	}
	defer os.RemoveAll(e.Dir)
	if err := e.Prepare(); err != nil {
		return r, err
	}
	if err := c.fill(ctx, e, p); err != nil {
		return r, err
	}
	// The suite's own timeout begins with its first test.
	ctx, cancel := context.WithTimeout(ctx, o.timeout+2*time.Minute)
	defer cancel()
	code, err := r.follow(ctx, e, done)
	if err != nil {
		return r, err
	}
	r.results.failUnfinished(done)
	if len(r.results) == 0 {
		return r, fmt.Errorf("%s: no test ran, and the suite exited with %d; its log ends with:\n%s", c.name, code, tail(r.log))
	}
	if r.calls, err = readCalls(e.Path(callsFile)); err != nil {
		return r, err
	}
	return r, nil
}

// follow runs the enclosure and reads its events. If there are any, they count, and not the
// exit code.
func (r run) follow(ctx context.Context, e enclosure.Enclosure, done func(string, *result)) (code int, err error) {
	raw, stdout, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	defer stdout.Close()
	e.Stdout = stdout
	converter := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // without -t no test has a duration
	converter.Stdin, converter.Stderr = raw, os.Stderr
	events, err := converter.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := converter.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		var err error
		code, err = e.Run(ctx)
		stdout.Close()
		ended <- err
	}()
	reading := r.results.read(events, e.Stderr, done)
	if reading != nil {
		_, _ = io.Copy(io.Discard, events) // so that the suite can end
	}
	err = errors.Join(reading, converter.Wait(), <-ended, ctx.Err())
	return code, err
}

// tail returns the end of a log.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const shown = 4000
	return string(b[max(0, len(b)-shown):])
}
