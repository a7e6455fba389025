package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Severity says what a finding means for pods.
type Severity string

// Severities.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // of something that this node does not use
	Warning Severity = "warning" // a part of the node does not work, or not as it seems
	Error   Severity = "error"   // pods fail, or others than root may take over the node
)

// Finding is one thing that was found out about the node.
type Finding struct {
	Area     string   `json:"area"` // kernel, cgroups, …
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	// Fix is what to do: a command, or a place in a file. It is empty if all is well.
	Fix string `json:"fix,omitempty"`
}

// Wrong reports whether something has to be done.
func (f Finding) Wrong() bool { return f.Severity == Warning || f.Severity == Error }

// Node says where the parts of a node are.
type Node struct {
	Proc       string              // /proc
	Release    string              // of the kernel, as uname -r prints it
	DataDir    string              // of pods and trees
	Containerd string              // path of containerd's configuration; empty: that of the running daemon, or the usual one
	Getenv     func(string) string // of rktctl
	Version    string              // of rktctl
	Problems   []Finding           // in the configuration, which the caller has checked
	Stage1s    []Stage1
}

// Stage1 is a stage1 of the node.
type Stage1 struct {
	Name     string
	AppcName string   // of its image, if that could be opened
	Rootfs   string   // of an image that is a directory, or empty
	Programs []string // paths of its entrypoints inside rootfs
	Problem  error    // why its image cannot be used
	Probe    error    // why features/probe has failed
	InUse    bool     // it is the default, the configuration names it, or a handler does
}

// examination is one examination of a node.
type examination struct {
	Node
	ctx      context.Context
	findings []Finding
	daemon   *daemon // nil if none runs
}

// Examine examines a node. The findings are in the order of the checks.
func Examine(ctx context.Context, n Node) []Finding {
	e := &examination{Node: n, ctx: ctx}
	e.kernel()
	e.cgroups()
	e.shim()
	e.containerd()
	e.dataDir()
	e.findings = append(e.findings, n.Problems...)
	e.stage1s()
	for i := range e.findings {
		f := &e.findings[i]
		f.Text, f.Fix = abi.Printable(f.Text), abi.Printable(f.Fix)
	}
	return e.findings
}

func (e *examination) ok(area, format string, args ...any) {
	e.findings = append(e.findings, Finding{Area: area, Severity: OK, Text: fmt.Sprintf(format, args...)})
}

// found adds a finding that something is wrong.
func (e *examination) found(s Severity, area, fix, format string, args ...any) {
	e.findings = append(e.findings, Finding{Area: area, Severity: s, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// read returns a file below Proc, or an empty string.
func (e *examination) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(e.Proc, name))
	return strings.TrimSpace(string(text))
}
