package metrics

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/journal"
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
}

// New returns a collector of a data directory, with the counters of a file, which need not
// exist. With keep it writes the counters back, and no other collector may do so meanwhile.
func New(dataDir, path string, keep bool) (*Collector, error) {
	c := &Collector{dataDir: dataDir}
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
		at := c.state.Pods[p.UUID]
		if at == nil {
			at = &position{}
			c.state.count("rkt_pods_seen_total", c.stage1(p.Stage1.Name))
		}
		seen[p.UUID] = at
		c.pod(p)
		c.calls(p, at)
	}
	c.state.Pods = seen
	c.failures(failed)
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
func (c *Collector) calls(p *view.Pod, at *position) {
	for _, e := range at.read(p.Dir) {
		if e.Entrypoint == "" {
			for range e.Unknown {
				c.state.count("rkt_unknown_fields_total", c.stage1(p.Stage1.Name))
			}
			continue
		}
		entrypoint := string(e.Entrypoint)
		if !slices.Contains(abi.Entrypoints(), e.Entrypoint) {
			entrypoint = other
		}
		labels := []label{c.stage1(p.Stage1.Name), {"entrypoint", entrypoint}}
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

// position says how far a journal was counted.
type position struct {
	Inode  uint64 `json:"inode,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// read returns the entries after the position and moves it to the end. If the journal was
// rotated since, it reads the rest of the old one first.
func (at *position) read(dir string) []journal.Entry {
	f, inode := open(filepath.Join(dir, journal.File))
	if f == nil {
		return nil
	}
	defer f.Close()
	var entries []journal.Entry
	if inode != at.Inode {
		if old, oldInode := open(filepath.Join(dir, journal.Old)); old != nil {
			if oldInode == at.Inode || at.Inode == 0 {
				entries, _ = from(old, at.Offset)
			}
			_ = old.Close()
		}
		at.Inode, at.Offset = inode, 0
	}
	more, n := from(f, at.Offset)
	at.Offset += n
	return append(entries, more...)
}

// maxJournal is how much is read of a journal at a time, in bytes.
const maxJournal = 1 << 20

// from returns the entries of the whole lines after an offset, and the length of these lines.
func from(f *os.File, offset int64) (entries []journal.Entry, n int64) {
	text, err := io.ReadAll(io.NewSectionReader(f, offset, maxJournal))
	if err != nil {
		return nil, 0
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	return journal.Parse(text), int64(len(text))
}

// open opens a regular file and returns its inode.
func open(path string) (*os.File, uint64) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0
	}
	st, err := f.Stat()
	if s, ok := st.Sys().(*syscall.Stat_t); err == nil && ok && st.Mode().IsRegular() {
		return f, s.Ino
	}
	_ = f.Close()
	return nil, 0
}
