package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// run is a finished run of the suite with one column.
type run struct {
	column  column
	results results
	calls   calls
	log     string // what the suite and its containerd said of no test
}

// execute runs the suite in an enclosure below dir, and tells done of every test.
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
	ran, err := r.follow(ctx, &e, done)
	if err != nil {
		return r, err
	}
	r.results.abandon(done)
	if len(r.results) == 0 {
		return r, fmt.Errorf("%s: no test ran: %w; the log ends with:\n%s", c.name, errOr(ran, "none is of that name"), tail(r.log))
	}
	if r.calls, err = readCalls(e.Path(callsFile)); err != nil {
		return r, err
	}
	return r, nil
}

// follow runs the enclosure and reads its events. How the suite ended, ran, is
// told by them, but for a suite that did not begin.
func (r run) follow(ctx context.Context, e *enclosure.Enclosure, done func(string, *result)) (ran, err error) {
	raw, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer stdout.Close()
	e.Stdout = stdout
	converter := exec.CommandContext(ctx, "go", "tool", "test2json", "-t") // without -t no test has a duration
	converter.Stdin, converter.Stderr = raw, os.Stderr
	events, err := converter.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := converter.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := e.Run(ctx)
		stdout.Close()
		ended <- err
	}()
	err = r.results.read(events, e.Stderr, done)
	if err != nil {
		_, _ = io.Copy(io.Discard, events) // so that the suite can end
	}
	err = errors.Join(err, converter.Wait())
	ran = <-ended
	if exit := (*exec.ExitError)(nil); ran != nil && !errors.As(ran, &exit) {
		err = errors.Join(err, ran)
	}
	return ran, errors.Join(err, ctx.Err())
}

func errOr(err error, otherwise string) error {
	if err == nil {
		return errors.New(otherwise)
	}
	return err
}

// tail is the end of a log.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const shown = 4000
	return string(b[max(0, len(b)-shown):])
}
