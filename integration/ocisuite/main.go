// Command ocisuite runs the validation programs of opencontainers/runtime-tools,
// unmodified, with runc's command line, with runc's shim, and with ours (`make test-oci`).
// The programs execute an OCI runtime. To test a shim, they execute a client that has a
// runtime's command line and works through containerd (./client). The results of runc's
// shim show which failures are caused by the client or by containerd.
//
// A program passes if it ends with code 0 and prints no "not ok". deviations.go lists the
// programs that do not pass, with reasons. The command fails if a program outside of the
// list does not pass, or if a listed one passes. It writes the results to a Markdown file.
//
// The programs use fixed names of cgroups, so each column runs in an enclosure.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// options are the command's flags.
type options struct {
	bin      string
	columns  string
	run      string
	document string
	keep     bool
	timeout  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory that make build fills")
	flag.StringVar(&o.columns, "columns", "runc,runc-shim,native,oci,nspawn", "columns to run")
	flag.StringVar(&o.run, "run", "", "run only the programs whose names match, and write no document")
	flag.StringVar(&o.document, "document", "", "file for the results, as Markdown")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of a run without problems, too")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long a column may take")
	flag.Parse()

	enclosure.Suite{
		Name:        "ocisuite",
		Keep:        o.keep,
		Outside:     func(ctx context.Context, dir string) error { return outside(ctx, o, dir) },
		Environment: uncoverEtc,
		Inside:      func() (int, error) { return 0, inside(o) },
	}.Main()
}

func outside(ctx context.Context, o options, dir string) error {
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	p, err := buildPrograms(ctx, o.bin, dir)
	if err != nil {
		return err
	}
	reports, err := runColumns(ctx, o, p, columns, dir)
	if err != nil {
		return err
	}
	return judge(ctx, o, p, reports)
}

// runColumns runs the columns one after the other, because programs have timeouts.
func runColumns(ctx context.Context, o options, p programs, columns []column, dir string) ([]report, error) {
	var reports []report
	for _, c := range columns {
		fmt.Printf("==> runtime-tools %s with %s\n", p.version, c.name)
		begin := time.Now()
		r, err := c.execute(ctx, o, p, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("    %s: %d of %d programs pass, in %s\n", c.name, r.passed(), len(r.results), time.Since(begin).Round(time.Second))
		reports = append(reports, r)
	}
	return reports, nil
}

// judge compares the results with the list of deviations, and writes the document if every
// program has run with every column.
func judge(ctx context.Context, o options, p programs, reports []report) error {
	problems := compare(reports, deviations(), o.run == "")
	if o.document != "" && o.run == "" && len(reports) == len(known()) {
		d := page{tools: p.version, reports: reports}
		var err error
		if d.runc, err = runcVersion(ctx); err != nil {
			return err
		}
		if err := os.WriteFile(o.document, []byte(d.String()), 0o644); err != nil {
			return err
		}
		fmt.Printf("==> wrote %s\n", filepath.Base(o.document))
	}
	if len(problems) > 0 {
		return fmt.Errorf("not what deviations.go says:\n\t%s", strings.Join(problems, "\n\t"))
	}
	fmt.Println("==> every program passes, except those that deviations.go lists")
	return nil
}
