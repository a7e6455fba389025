package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// Limits of labels.
const (
	maxStage1s = 32
	maxFields  = 64
	other      = "other" // stands for all further values
)

// Collector counts the pods of one node. Its methods must not be called concurrently.
type Collector struct {
	node    *view.Node
	dataDir string
	path    string // of the file with the counters; empty: they are not kept
	lock    *os.File
	state   *state
	gauges  *registry
	tails   map[string]*tail // by the UUIDs of pods
	spans   *Exporter        // nil: no spans are kept
}

// New returns a collector of a data directory, with the counters of a file, which need not
// exist. With keep it writes the counters back, and no other collector may do so meanwhile. Spans
// are kept for the exporter, unless it is nil; this needs keep.
func New(dataDir, path string, keep bool, spans *Exporter) (*Collector, error) {
	c := &Collector{dataDir: dataDir, tails: map[string]*tail{}, spans: spans}
	var err error
	if c.node, err = view.Open(dataDir); err != nil {
		return nil, err
	}
	if keep {
		if c.lock, err = lock(path); err != nil {
			return nil, err
		}
		c.path = path
	}
	if c.state, err = readState(path); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close lets another collector keep the counters.
func (c *Collector) Close() error {
	for _, t := range c.tails {
		t.close()
	}
	if c.spans != nil {
		c.spans.Close()
	}
	if c.lock == nil {
		return nil
	}
	return c.lock.Close()
}

// Collect counts what has happened since the last call, and writes the counters to their file.
func (c *Collector) Collect() error {
	began := time.Now()
	pods, err := c.node.Pods()
	if err != nil {
		return err
	}
	failed, err := disk.Failures(c.dataDir)
	if err != nil {
		return err
	}
	c.gauges = newRegistry()
	seen := map[string]*position{}
	for _, p := range pods {
		t := c.tails[p.UUID]
		if t == nil {
			t = &tail{position: c.state.Pods[p.UUID], ids: map[string]string{}}
			if t.position == nil {
				t.position = &position{}
				c.state.count("rkt_pods_seen_total", c.stage1(p.Stage1.Name))
			}
			c.tails[p.UUID] = t
		}
		seen[p.UUID] = t.position
		t.see(p)
		c.pod(p)
		c.calls(t)
	}
	for uuid, t := range c.tails {
		if seen[uuid] == nil {
			c.calls(t)
			t.close()
			delete(c.tails, uuid)
		}
	}
	c.state.Pods = seen
	c.failures(failed)
	c.gauges.set("rkt_spans_waiting", float64(len(c.state.Spans)))
	c.gauges.set("rkt_collection_seconds", time.Since(began).Seconds())
	if c.path == "" {
		return nil
	}
	return c.state.write(c.path)
}

// stage1 returns the label of a stage1.
func (c *Collector) stage1(name string) label {
	return label{"stage1", c.state.bounded("stage1", cmp.Or(name, other), maxStage1s)}
}

// pod sets the gauges of a pod and its apps.
func (c *Collector) pod(p *view.Pod) {
	stage1 := c.stage1(p.Stage1.Name)
	c.gauges.add("rkt_pods", 1, stage1, label{"state", string(p.State)})
	if p.State == view.PodRunning && !p.Served() {
		c.gauges.add("rkt_pods_without_shim", 1)
	}
	if len(p.Problems) > 0 {
		c.gauges.add("rkt_pods_with_damaged_records", 1)
	}
	for _, a := range p.Apps {
		c.gauges.add("rkt_apps", 1, label{"state", string(a.State)})
	}
	for kind, process := range map[string]*view.Process{"shim": p.Shim, "supervisor": p.Supervisor, "holder": p.Holder} {
		if process != nil && process.Alive {
			c.gauges.add("rkt_processes", 1, label{"kind", kind})
			c.gauges.add("rkt_processes_resident_bytes", resident(process.PID), label{"kind", kind})
		}
	}
}

// resident returns the resident memory of a process in bytes, or 0 if it has ended.
func resident(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	words := strings.Fields(string(text))
	if err != nil || len(words) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(words[1], 64)
	return pages * float64(os.Getpagesize())
}

// calls counts the new entries of a pod's journal.
func (c *Collector) calls(t *tail) {
	stage1 := c.stage1(t.pod.Stage1.Name)
	for _, e := range t.read() {
		if e.Entrypoint == "" {
			for range e.Unknown {
				c.state.count("rkt_unknown_fields_total", stage1)
			}
			continue
		}
		if c.spans != nil {
			if x, ok := t.spanOf(&e); ok {
				c.state.keepSpan(x)
			}
		}
		labels := []label{stage1, {"entrypoint", entrypointOf(&e)}}
		if e.Code != 0 && e.State == "" {
			c.state.count("rkt_entrypoint_failures_total", append(labels, label{"code", codeOf(e.Code)})...)
		}
		// A call that stays has a line when it is ready, and one for its end, which says how
		// long the pod or exec was there.
		if stays := e.Entrypoint == abi.Run || e.Entrypoint == abi.Enter; e.State == journal.Ready || !stays {
			c.state.observe("rkt_entrypoint_seconds", e.Millis/1000, labels...)
		}
	}
}

// entrypointOf returns the name of an entry's entrypoint.
func entrypointOf(e *journal.Entry) string {
	if !slices.Contains(abi.Entrypoints(), e.Entrypoint) {
		return other
	}
	return string(e.Entrypoint)
}

// codeOf returns the label of an exit code.
func codeOf(code int) string {
	switch {
	case code == -1:
		return "ended by stage 0"
	case code > 128:
		return "signal"
	case slices.Contains([]int{1, abi.ExitNotFound, abi.ExitFailedPrecondition, abi.ExitNotImplemented}, code):
		return strconv.Itoa(code)
	}
	return other
}

// refusal finds the field in the error of a refused config.json.
var refusal = regexp.MustCompile(`config\.json asks for (/[^ ,]*), which stage1`)

// failures counts the failed starts since the last call.
func (c *Collector) failures(failed []disk.FailedStart) {
	counted := map[string]int{}
	for _, f := range failed {
		key := f.Name()
		n := f.Count - c.state.Failures[key]
		counted[key] = f.Count
		if n <= 0 {
			continue
		}
		stage1 := c.stage1("")
		if f.Stage1 != nil {
			stage1 = c.stage1(f.Stage1.Name)
		}
		c.state.add("rkt_failed_starts_total", float64(n), stage1, label{"step", stepOf(f.Step)})
		if m := refusal.FindStringSubmatch(f.Error); m != nil {
			c.state.add("rkt_refused_fields_total", float64(n), stage1, label{"field", c.state.bounded("field", fieldOf(m[1]), maxFields)})
		}
	}
	c.state.Failures = counted
}

func stepOf(step string) string {
	if slices.Contains([]string{disk.StepServer, disk.StepCreate, disk.StepStart, disk.StepCreateSandbox, disk.StepStartSandbox}, step) {
		return step
	}
	return other
}

// fieldOf returns at most two words of the pointer to a field that the OCI spec has.
func fieldOf(pointer string) string {
	words := strings.SplitN(pointer, "/", 4)
	pointer = strings.Join(words[:min(len(words), 3)], "/")
	if len(words) > 2 && spec.Follow(pointer) != nil || spec.Follow("/"+words[1]) != nil {
		return other
	}
	return pointer
}
