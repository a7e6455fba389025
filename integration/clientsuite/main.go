// Command clientsuite runs containerd's own client suite with runc's shim and with ours, and
// compares the results: `make test-client`, and with machines `make test-kvm-client`. Every test
// that passes with runc must pass with ours, except those that exceptions.go lists with a reason. It
// writes both columns, test by test and RPC by RPC, to a Markdown file.
//
// The suite pulls its images from registries, starts its containerd at a fixed path, and looks
// for its containers' processes by their names. So it runs in an enclosure, with a registry of
// its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

// options are the command's flags.
type options struct {
	bin      string
	columns  string
	run      string
	document string
	answers  string
	ask      bool
	keep     bool
	timeout  time.Duration
	// rpcs is set if every RPC is put to the columns in every state. With machines it is not: each
	// question would boot one, and the answers are the shim's.
	rpcs bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory that make build fills")
	flag.StringVar(&o.columns, "columns", "runc,rkt", "columns to run: runc, and rkt or kvm, which is compared with it")
	flag.StringVar(&o.run, "run", "", "run only the tests that match, and write no document")
	flag.StringVar(&o.document, "document", "", "file for both columns, as Markdown")
	flag.StringVar(&o.answers, "answers", "", "file for the answers of runc's shim to every RPC (see package rpcs)")
	flag.BoolVar(&o.ask, "ask", false, "put every RPC to the shims in every state, and do not run the suite")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of a run without problems, too")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long a column may take")
	flag.Parse()

	enclosure.Suite{
		Name:    "clientsuite",
		Keep:    o.keep,
		Outside: func(ctx context.Context, dir string) error { return outside(ctx, o, dir) },
		Inside: func() (int, error) {
			if o.ask {
				return 0, insideAsking(o)
			}
			return inside(o)
		},
	}.Main()
}

// inside returns the arguments with which this program runs one column.
func (o options) inside(c column) []string {
	return []string{"-columns=" + c.name, "-run=" + o.run, "-timeout=" + o.timeout.String()}
}

func outside(ctx context.Context, o options, dir string) error {
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	o.rpcs = o.run == "" && !slices.ContainsFunc(columns, column.ofMachines)
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	p, err := buildPrograms(ctx, bin, dir)
	if err != nil {
		return err
	}
	runs, err := runColumns(ctx, o, p, columns, dir)
	if err != nil || len(runs) < 2 {
		return err
	}
	return judge(ctx, o, p, runs[0], runs[1])
}

// runColumns runs the columns one after the other, because the suite measures times.
func runColumns(ctx context.Context, o options, p programs, columns []column, dir string) ([]run, error) {
	var runs []run
	for _, c := range columns {
		r, err := runColumn(ctx, o, p, c, dir, runs)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func runColumn(ctx context.Context, o options, p programs, c column, dir string, before []run) (r run, err error) {
	if !o.ask {
		fmt.Printf("==> containerd's client suite with %s\n", c.runtime)
		begin := time.Now()
		if r, err = c.execute(ctx, o, p, dir, progress{os.Stdout, c, before}.show); err != nil {
			return r, err
		}
		n := r.results.count()
		fmt.Printf("    %s: %d pass, %d fail, %d skip in %s\n", c.name, n[passed], n[failed], n[skipped], time.Since(begin).Round(time.Second))
	}
	if o.rpcs {
		fmt.Printf("==> every RPC in every state with %s\n", c.runtime)
		r.answers, err = c.ask(ctx, p, dir)
	}
	return r, err
}

// judge compares the columns, writes the document if all tests have run, and fails if there are
// problems.
func judge(ctx context.Context, o options, p programs, runc, ours run) error {
	var problems []string
	if !o.ask {
		result := compare(runc.results, ours.column.name, ours.results, ours.column.exceptions, o.run == "")
		problems = result.problems
		d := document{comparison: result, columns: []run{runc, ours}, cgroups: cgroupVersion()}
		if err := d.write(ctx, o, p); err != nil {
			return err
		}
	}
	if o.rpcs {
		problems = append(problems, rpcs.Compare(runc.answers, ours.answers)...)
		if err := o.keepAnswers(runc.answers); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("not on a par with runc's shim:\n\t%s", strings.Join(problems, "\n\t"))
	}
	fmt.Println("==> on a par with runc's shim")
	return nil
}

// write writes the document. All tests must have run.
func (d document) write(ctx context.Context, o options, p programs) (err error) {
	if o.run != "" || o.document == "" {
		return nil
	}
	if d.containerd, d.runc, err = p.versions(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(o.document, []byte(d.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("==> wrote %s\n", o.document)
	return nil
}

// keepAnswers writes the answers of runc's shim to the file that `make test` compares with.
func (o options) keepAnswers(answers rpcs.Answers) error {
	if o.answers == "" {
		return nil
	}
	if err := writeAnswers(o.answers, answers); err != nil {
		return err
	}
	fmt.Printf("==> wrote %s\n", o.answers)
	return nil
}

// cgroupVersion returns the version of cgroups that containers get on this machine.
func cgroupVersion() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "v2"
	}
	return "v1"
}
