package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// mark begins the lines that the guest's script writes between the output of test binaries:
// up, begin NAME, end NAME CODE, done.
const mark = "\x01"

// testMark begins the results that package testing prints with -test.v=test2json. After one of
// them test2json takes a line without it for output of a test.
const testMark = "\x16"

// packagePrefix distinguishes a suite in the guest from the same suite on this machine.
const packagePrefix = "guest/"

// results translates the guest's output into that of `go test -json`.
type results struct {
	out   io.Writer // for test2json
	log   io.Writer // for people
	start time.Time
	up    func() bool // called when the guest has booted; may be nil
	suite string      // the running suite
	said  time.Time
	tests int // of the suite, so far

	skips   map[string]int // suites of which the number of skipped tests is held
	skipped int            // of the suite, so far

	failed   []string // suites, with their exit codes
	finished bool
	convert  *exec.Cmd
	pipe     io.WriteCloser
}

// read reads the guest's output to its end. The error is errTests if all suites were run and
// not all passed; it names those that failed.
func (r *results) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if e := r.line(ctx, line); e != nil {
			return errors.Join(e, r.close(noCode))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return errors.Join(err, r.close(noCode))
		}
	}
	if err := r.close(noCode); err != nil {
		return err
	}
	switch {
	case !r.finished:
		return errors.New("the guest ended before its tests did")
	case len(r.failed) > 0:
		return fmt.Errorf("%w: %s", errTests, strings.Join(r.failed, ", "))
	}
	return nil
}

func (r *results) line(ctx context.Context, line string) error {
	// If a test writes without an end of line, its text precedes the mark.
	text, command, marked := strings.Cut(line, mark)
	if r.pipe != nil && text != "" {
		if _, err := io.WriteString(r.pipe, text); err != nil {
			return err
		}
		r.progress(text)
	}
	if !marked {
		return nil
	}
	verb, rest, _ := strings.Cut(strings.TrimSpace(command), " ")
	switch verb {
	case "up":
		if r.up != nil {
			r.up()
		}
		r.say("the guest is up: " + rest)
	case "begin":
		r.say("running the tests of " + rest)
		return r.begin(ctx, rest)
	case "end":
		_, code, _ := strings.Cut(rest, " ")
		r.say(r.suite + " ended with code " + code)
		return r.close(code)
	case "done":
		r.finished = true
	default: // a test's own output
		if r.pipe != nil {
			_, err := io.WriteString(r.pipe, mark+command)
			return err
		}
	}
	return nil
}

func (r *results) say(what string) {
	r.said = time.Now()
	fmt.Fprintf(r.log, "==> %4.0fs %s\n", time.Since(r.start).Seconds(), what)
}

// progress counts tests that are skipped, and prints from time to time which test begins.
func (r *results) progress(line string) {
	if strings.Contains(line, "--- SKIP: ") {
		r.skipped++
	}
	_, test, ok := strings.Cut(line, "=== RUN ")
	if !ok {
		return
	}
	r.tests++
	if time.Since(r.said) > 20*time.Second {
		r.say(fmt.Sprintf("%s: %d: %s", r.suite, r.tests, strings.TrimSpace(test)))
	}
}

// begin starts a test2json for the output of a suite.
func (r *results) begin(ctx context.Context, suite string) (err error) {
	r.suite, r.tests, r.skipped = suite, 0, 0
	r.convert = exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", packagePrefix+suite)
	r.convert.Stdout, r.convert.Stderr = r.out, r.log
	if r.pipe, err = r.convert.StdinPipe(); err != nil {
		return err
	}
	if err := r.convert.Start(); err != nil {
		r.pipe = nil
		return err
	}
	return nil
}

// noCode stands for the exit code of a suite that the guest has not ended.
const noCode = ""

// close ends test2json. If the suite's exit code is not 0, the suite has failed, whatever the
// results of its tests are: something may be left of them, or a daemon may not end. It has also
// failed if it has skipped another number of tests than is known.
func (r *results) close(code string) error {
	if r.pipe == nil {
		return nil
	}
	pipe := r.pipe
	r.pipe = nil
	var err error
	want, held := r.skips[r.suite]
	how := ""
	switch {
	case code == noCode:
		how = "has no end"
	case code != "0":
		how = "ended with code " + code
	case held && r.skipped != want:
		how = fmt.Sprintf("has skipped %d tests, and not %d", r.skipped, want)
	}
	if how != "" {
		r.failed = append(r.failed, r.suite+" "+how)
		_, err = fmt.Fprintf(pipe, "\nThe suite %s %s.\n%sFAIL\n", r.suite, how, testMark)
	}
	return errors.Join(err, pipe.Close(), r.convert.Wait())
}
