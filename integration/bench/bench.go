package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is one run of the benchmark.
type bench struct {
	*rig
	samples  int
	settle   time.Duration
	results  results
	progress progress
}

// chapter is a part of the benchmark that can be run by itself.
type chapter struct {
	name    string
	measure func(context.Context, *bench) error
}

// chapters in the order in which they run.
func chapters(machines bool) []chapter {
	if machines {
		return machineChapters()
	}
	return []chapter{
		{"run", measureRun},
		{"pod", measurePods},
		{"container", measureContainers},
		{"exec", measureExecs},
		{"together", measureTogether},
		{"kubernetes", measureKubernetes},
		{"memory", measureMemory},
		{"used", measureUsed},
		{"stdio", measureStdio},
		{"cold", measureCold},
		{"many", measureMany},
		{"manyexecs", measureManyExecs},
	}
}

func chapterNames(machines bool) []string {
	var names []string
	for _, c := range chapters(machines) {
		names = append(names, c.name)
	}
	return names
}

// chooseChapters returns the chapters of some names; "" is all.
func chooseChapters(names string, machines bool) ([]chapter, error) {
	if names == "" {
		return chapters(machines), nil
	}
	var chosen []chapter
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(chapters(machines), func(c chapter) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only %q: choose from %s", name, strings.Join(chapterNames(machines), ", "))
		}
		chosen = append(chosen, chapters(machines)[i])
	}
	return chosen, nil
}

// subject is a runtime that is measured.
type subject struct {
	name    string // as in -runtimes and in the table's head
	runtime string // what clients pass
	binary  string // of runc's shim: the OCI runtime; empty: its default
}

// baseline is the subject to which the others are compared.
const baseline = "runc"

// floor is a shim above an empty pod: package internal/nullshim.
const floor = "null"

// native is the default stage1.
const native = "native"

// virtual is the stage1 of virtual machines, which needs the files of make kvm.
const virtual = "kvm"

const (
	runcShim = "io.containerd.runc.v2"
	ociShim  = "io.containerd.rkt-oci.v1"

	// Debian's crun knows no spec of the version that containerd 2.4 writes, which runc's
	// shim hands on.
	subjectNames = "native, oci, oci-crun, oci-runc-current, nspawn, kvm, null, runc and runc-current"
)

func chooseSubjects(names string) ([]subject, error) {
	var chosen []subject
	for _, name := range strings.Split(names, ",") {
		s := subject{name: name}
		switch name {
		case native:
			s.runtime = "io.containerd.rkt.v1"
		case "oci":
			s.runtime = ociShim
		case "nspawn":
			s.runtime = "io.containerd.rkt-nspawn.v1"
		case virtual:
			s.runtime = "io.containerd.rkt-kvm.v1"
		case floor:
			s.runtime = "io.containerd.null.v1"
		case baseline:
			s.runtime = runcShim
		case "oci-crun":
			s.runtime, s.binary = ociShim, "crun"
		case "oci-runc-current":
			s.runtime, s.binary = ociShim, "runc-current"
		case "runc-current":
			s.runtime, s.binary = runcShim, "runc-current"
		default:
			return nil, fmt.Errorf("-runtimes %q: choose from %s", name, subjectNames)
		}
		if slices.Contains(chosen, s) {
			return nil, fmt.Errorf("-runtimes: %s is there twice", name)
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// shim is the name of the subject's shim binary, by containerd's rule.
func (s subject) shim() string {
	parts := strings.Split(s.runtime, ".")
	return "containerd-shim-" + strings.Join(parts[len(parts)-2:], "-")
}

// owns reports whether a process with this command line is a shim of the subject. Its ids are
// made by rig.id.
func (s subject) owns(commandLine string) bool {
	argv0, _, _ := strings.Cut(commandLine, " ")
	_, id, _ := strings.Cut(commandLine, " -id ")
	id, _, _ = strings.Cut(id, " ")
	name, serial, _ := cutLast(id, "-")
	_, err := strconv.Atoi(serial)
	return filepath.Base(argv0) == s.shim() && name == s.name && err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// recorder takes one sample's values.
type recorder func(operation, float64)

// alternate takes n samples of each subject, one subject after the other. It changes the
// order, so that each subject goes first equally often. Otherwise the work that one subject
// leaves behind would always disturb the same other subject. Samples with a negative number
// warm up, and are not recorded.
func (b *bench) alternate(ctx context.Context, title string, n int, sample func(ctx context.Context, s subject, record recorder) error) error {
	var all []sampler
	for _, s := range b.subjects {
		all = append(all, sampler{s.name, func(ctx context.Context, record recorder) error { return sample(ctx, s, record) }})
	}
	return b.turns(ctx, title, n, 2, all...)
}

// sampler takes samples for a column of the table.
type sampler struct {
	column string
	sample func(context.Context, recorder) error
}

// turns is alternate for any samplers, after some rounds that warm up.
func (b *bench) turns(ctx context.Context, title string, n, warmUp int, all ...sampler) error {
	step, done := b.progress.begin(title, n)
	defer done()
	for i := -warmUp; i < n; i++ {
		step(max(0, i))
		for j := range all {
			s := all[(i+warmUp+j)%len(all)]
			record := func(op operation, value float64) { b.results.add(op, s.column, value) }
			if i < 0 {
				record = func(operation, float64) {}
			}
			if err := b.undisturbed(ctx, func(ctx context.Context) error { return s.sample(ctx, record) }); err != nil {
				return fmt.Errorf("%s: %w", s.column, err)
			}
		}
	}
	return nil
}

// undisturbed calls do in such a way that an interrupt does not cancel it: a call that is cut
// off half-way leaves a container that close does not know of.
func (r *rig) undisturbed(ctx context.Context, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience())
	defer cancel()
	return do(ctx)
}

// milliseconds returns the time since start.
func milliseconds(start time.Time) float64 {
	return float64(time.Since(start)) / float64(time.Millisecond)
}
