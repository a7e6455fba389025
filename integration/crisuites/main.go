// Command crisuites runs two suites of other projects that test pods through CRI: critest, the
// validation suite of the Kubernetes project's CRI tools (`make test-critest`), and
// containerd's own (`make test-containerd-cri`). It runs them with runc's handler and with
// ours, with and without a pause container. Every test that passes with runc must pass with
// rkt. The columns are written, test by test, into a block of a Markdown file.
//
// The suites pull their images from registries, use fixed ports and paths of the node, kill its
// containerd by name, and count images. So each column runs in an enclosure, with a node and a
// registry of its own. The images are made of the host's busybox and of some small programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// options are the command's flags.
type options struct {
	suite    string
	bin      string
	columns  string
	focus    string
	document string
	keep     bool
	timeout  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "critest", "critest or containerd")
	flag.StringVar(&o.bin, "bin", "bin", "directory that make build fills")
	flag.StringVar(&o.columns, "columns", "runc,rkt,rkt-shim", "columns to run; the first is what the others are held to")
	flag.StringVar(&o.focus, "focus", "", "run only the tests that match, and write no document")
	flag.StringVar(&o.document, "document", "", "file with a block for the columns")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of a run without problems, too")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long a column may take")
	flag.Parse()

	enclosure.Suite{
		Name:        "crisuites",
		Keep:        o.keep,
		Outside:     func(ctx context.Context, dir string) error { return outside(ctx, o, dir) },
		Environment: enclosure.AddPrograms,
		Inside:      func() (int, error) { return inside(o) },
	}.Main()
}

func outside(ctx context.Context, o options, dir string) error {
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	su, err := suiteNamed(o.suite)
	if err != nil {
		return err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	reports, err := runColumns(ctx, o, su, columns, dir)
	if err != nil {
		return err
	}
	return judge(o, su, reports)
}

// block returns the name of the document's block for the columns.
func (o options) block() string {
	if strings.Contains(o.columns, "kvm") {
		return o.suite + "-kvm"
	}
	return o.suite
}

// runColumns runs all columns in parallel, because they wait most of the time.
func runColumns(ctx context.Context, o options, su suite, columns []node.Handler, dir string) ([]report, error) {
	fmt.Printf("==> the suite %s with the handlers %s\n", o.suite, o.columns)
	// Programs that are built once are built before all columns want them at once.
	if _, err := su.program(ctx, os.Stderr); err != nil {
		return nil, err
	}
	reports, errs := make([]report, len(columns)), make([]error, len(columns))
	var wg sync.WaitGroup
	for i, c := range columns {
		wg.Go(func() {
			begin := time.Now()
			if reports[i], errs[i] = runColumn(ctx, o, su, c, dir); errs[i] != nil {
				return
			}
			n := reports[i].count()
			fmt.Printf("    %s: %d pass, %d fail, %d skip in %s\n", c.Name, n[passed], n[failed], n[skipped], time.Since(begin).Round(time.Second))
		})
	}
	wg.Wait()
	return reports, errors.Join(errs...)
}

// judge compares the columns, writes the document if all tests have run, and fails if one of
// ours is worse than the first column.
func judge(o options, su suite, reports []report) error {
	c := compare(reports, su.exceptions)
	if o.document != "" && o.focus == "" && len(reports) > 1 {
		if err := document.Replace(o.document, o.block(), c.String()); err != nil {
			return err
		}
		fmt.Printf("==> wrote %s\n", o.document)
	}
	if len(c.problems) > 0 {
		return fmt.Errorf("not on a par with the handler %s:\n\t%s", reports[0].handler, strings.Join(c.problems, "\n\t"))
	}
	if len(reports) > 1 {
		fmt.Printf("==> on a par with the handler %s\n", reports[0].handler)
	}
	return nil
}
