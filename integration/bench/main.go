// Command bench compares the shim with runc's, operation by operation, in one
// private containerd on one machine, and prints a table: `make bench`.
//
// Samples of the runtimes alternate, so that other work on the machine disturbs all of them
// alike. So the ratios are reliable even where the times are not. The benchmark measures the
// times that a client sees, through ctr and the Go client, the processor time of everything that
// works for that client, and the memory of the processes that a runtime adds to a container's
// own. It compares the figures only with the budgets of
// docs/performance.md, and fails only if it cannot measure, or if something is left on the
// machine at its end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the command's flags.
type options struct {
	bin      string
	samples  int
	runtimes string
	only     string
	json     string
	base     string
	document string
	settle   time.Duration
	machines bool
	accel    string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory that make build fills")
	flag.IntVar(&o.samples, "n", 50, "samples of each operation and runtime")
	flag.StringVar(&o.runtimes, "runtimes", "native,null,runc", "runtimes to compare, of "+subjectNames)
	flag.StringVar(&o.only, "only", "", "what to measure: "+strings.Join(chapterNames(false), ",")+"; with -machines "+strings.Join(chapterNames(true), ",")+"; empty: all")
	flag.BoolVar(&o.machines, "machines", false, "compare machines of the stage1 kvm with bare boots, in place of the runtimes: make bench-kvm")
	flag.StringVar(&o.accel, "accel", "tcg", "accelerator of machines: tcg or kvm")
	flag.StringVar(&o.json, "json", "", "file for the raw samples")
	flag.StringVar(&o.base, "base", "", "file of -json of an earlier run, to compare native with")
	flag.StringVar(&o.document, "document", "", "Markdown file for the table")
	flag.DurationVar(&o.settle, "settle", 35*time.Second, "how long pods are left alone before their memory is read")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// If cleaning up hangs, a second interrupt ends the program.
	context.AfterFunc(ctx, stop)

	chosen, err := chooseChapters(o.only, o.machines)
	if err != nil {
		return err
	}
	if o.machines {
		o.runtimes = virtual + "," + native
	}
	subjects, err := chooseSubjects(o.runtimes)
	if err != nil {
		return err
	}
	if o.samples < 1 {
		return fmt.Errorf("-n %d: at least one sample is needed", o.samples)
	}
	before, err := readSamples(o.base)
	if err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("this needs root: containers, mounts and cgroups are real")
	}
	r, err := openRig(ctx, o.bin, o.accel, subjects)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()

	b := &bench{rig: r, samples: o.samples, settle: o.settle, results: results{}, progress: newProgress(os.Stderr)}
	machine, err := describeMachine(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range chosen {
		err := c.measure(ctx, b)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	machine.finish()
	table := b.results.table(subjects, before)
	if o.machines {
		table = b.results.machineTable()
	}
	fmt.Printf("\n%s\n%s", machine, table)
	if o.json != "" {
		if err := writeJSON(o.json, machine, subjects, b.results); err != nil {
			return err
		}
	}
	switch {
	case o.document != "" && o.machines:
		return os.WriteFile(o.document, []byte(machineDocument(machine, r.machines.versions, o.accel, o.settle, table)), 0o644)
	case o.document != "":
		return os.WriteFile(o.document, []byte(document(machine, b.results.table(subjects, nil))), 0o644)
	}
	return nil
}
