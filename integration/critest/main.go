// Command critest runs the validation suite of the Kubernetes project's CRI tools,
// critest, with runc's handler and with ours, with a pause container and without:
// `make test-critest`. What passes with runc must pass with rkt. It writes the columns,
// spec by spec, into a block of a Markdown file.
//
// The suite pulls its images from registries, uses fixed ports of the node, and
// counts images. So each column runs in an enclosure, with a node and a registry of
// its own; the images are made of the host's busybox and of two small programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// options are the flags.
type options struct {
	bin      string
	columns  string
	focus    string
	document string
	keep     bool
	timeout  time.Duration
}

// suiteVariable marks the process that runs node and suite in an enclosure, whose
// first process only reaps.
const suiteVariable = "RKT_CRITEST"

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory that make build fills")
	flag.StringVar(&o.columns, "columns", "runc,rkt,rkt-shim", "columns to run; the first is what the others are held to")
	flag.StringVar(&o.focus, "focus", "", "run only the specs that match, and write no document")
	flag.StringVar(&o.document, "document", "", "file with a block for the columns")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of a run without problems, too")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long a column may take")
	flag.Parse()

	var code int
	var err error
	switch {
	case os.Getenv(suiteVariable) != "":
		code, err = runSuite(o)
	case enclosure.Inside():
		code, err = enter()
	default:
		err = outside(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "critest:", err)
		code = 1
	}
	os.Exit(code)
}

func outside(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getuid() != 0 {
		return errors.New("pods need root")
	}
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rkt-critest-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.keep {
			os.RemoveAll(dir)
			return
		}
		fmt.Printf("the logs are in %s\n", dir)
	}()
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	var reports []report
	for _, c := range columns {
		fmt.Printf("==> critest with the handler %s\n", c.Name)
		begin := time.Now()
		r, err := runColumn(ctx, o, c, dir)
		if err != nil {
			return err
		}
		n := r.count()
		fmt.Printf("    %d pass, %d fail, %d skip in %s\n", n[passed], n[failed], n[skipped], time.Since(begin).Round(time.Second))
		reports = append(reports, r)
	}
	return judge(o, reports)
}

// judge compares the columns, writes the document of a whole run, and fails if ours
// do worse than the first.
func judge(o options, reports []report) error {
	c := compare(reports)
	if o.document != "" && o.focus == "" && len(reports) > 1 {
		if err := document.Replace(o.document, "critest", c.String()); err != nil {
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
