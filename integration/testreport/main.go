// Command testreport reads the output of `go test -json`. It prints a line per package, the
// output of failed tests and the reasons of skipped ones, and exits with 1 if anything failed.
// If TEST_TALLY names a file, it appends a line "passed failed skipped" to the file.
//
// A test with sub-tests is not counted in addition to them, and a package that fails without a
// failed test counts as one failure. With TEST_SLOW=SECONDS it lists the tests that took
// longer.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// event is one line of test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

func main() {
	r := report{out: os.Stdout, start: time.Now(), packages: map[string]*pkg{}}
	if limit := os.Getenv("TEST_SLOW"); limit != "" {
		var err error
		if r.slow, err = strconv.ParseFloat(limit, 64); err != nil {
			fmt.Fprintln(os.Stderr, "testreport: TEST_SLOW:", err)
			os.Exit(1)
		}
	}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	fmt.Printf("    %d passed, %d failed, %d skipped in %s\n", r.passed, r.failed, r.skipped, time.Since(r.start).Round(time.Second))
	if path := os.Getenv("TEST_TALLY"); path != "" {
		if err := r.tally(path); err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(1)
		}
	}
	if r.failed > 0 {
		os.Exit(1)
	}
}

type report struct {
	out                     io.Writer
	start                   time.Time
	packages                map[string]*pkg
	passed, failed, skipped int
	slow                    float64 // seconds; 0 means no list
}

// pkg is a package whose tests are running.
type pkg struct {
	output  map[string]*strings.Builder // by test; "" is the package's own
	parents map[string]bool
	results map[string]string // by test: pass, fail, skip
}

func (r *report) read(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if json.Unmarshal(s.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, s.Text()) // a message of the go command itself
			continue
		}
		r.event(e)
	}
	return s.Err()
}

func (r *report) event(e event) {
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{output: map[string]*strings.Builder{}, parents: map[string]bool{}, results: map[string]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		if i := strings.LastIndex(e.Test, "/"); i > 0 {
			p.parents[e.Test[:i]] = true
		}
	case "output":
		if p.output[e.Test] == nil {
			p.output[e.Test] = &strings.Builder{}
		}
		p.output[e.Test].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.finish(e, p)
		} else {
			p.results[e.Test] = e.Action
			r.show(e, p)
			if r.slow > 0 && e.Elapsed > r.slow {
				fmt.Fprintf(r.out, "    slow       %5.1fs  %s\n", e.Elapsed, e.Test)
			}
		}
	}
}

// show prints the output of a test that failed or was skipped.
func (r *report) show(e event, p *pkg) {
	if out := p.output[e.Test]; out != nil && e.Action != "pass" {
		for _, l := range strings.SplitAfter(out.String(), "\n") {
			if !strings.HasPrefix(l, "=== ") {
				fmt.Fprint(r.out, l)
			}
		}
	}
	delete(p.output, e.Test)
}

func (r *report) finish(e event, p *pkg) {
	delete(r.packages, e.Package)
	passed, failed, skipped := p.count()
	if e.Action == "fail" && failed == 0 {
		failed = 1
		fmt.Fprintf(r.out, "--- FAIL: %s: none of its tests failed, but the package did:\n", e.Package)
	}
	if out := p.output[""]; out != nil && e.Action == "fail" {
		fmt.Fprint(r.out, out.String())
		for test, rest := range p.output { // after a panic some tests have no result
			if test != "" {
				fmt.Fprint(r.out, rest.String())
			}
		}
	}
	r.passed, r.failed, r.skipped = r.passed+passed, r.failed+failed, r.skipped+skipped
	if passed+failed+skipped > 0 {
		fmt.Fprintf(r.out, "    %-4s %4d  %5.1fs  %s\n", e.Action, passed+failed+skipped, e.Elapsed, e.Package)
	}
}

// count counts the results of tests without sub-tests. A parent that fails although all its
// sub-tests pass is counted, too.
func (p *pkg) count() (passed, failed, skipped int) {
	for test, result := range p.results {
		if p.parents[test] && (result != "fail" || p.childFailed(test)) {
			continue
		}
		switch result {
		case "pass":
			passed++
		case "fail":
			failed++
		case "skip":
			skipped++
		}
	}
	return passed, failed, skipped
}

func (p *pkg) childFailed(parent string) bool {
	for test, result := range p.results {
		if result == "fail" && strings.HasPrefix(test, parent+"/") {
			return true
		}
	}
	return false
}

func (r *report) tally(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, r.passed, r.failed, r.skipped); err != nil {
		return err
	}
	return f.Close()
}
