package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// bench has the members of the benchmark's file that the plot shows.
type bench struct {
	Version int `json:"version"`
	Machine struct {
		Kernel     string `json:"kernel"`
		Processors int    `json:"processors"`
		Model      string `json:"model"`
		Containerd string `json:"containerd"`
		Runc       string `json:"runc"`
	} `json:"machine"`
	Operations []struct {
		Name    string               `json:"name"`
		Unit    string               `json:"unit"`
		Samples map[string][]float64 `json:"samples"`
	} `json:"operations"`
}

// The runtimes that the plot compares.
const (
	ours   = "native"
	theirs = "runc"
)

// plotted are the names of the operations in the plot, as the benchmark names them. Less is better
// in all of them.
var plotted = []string{
	"`ctr run --rm … true`",
	"Create + Start of a new pod's container",
	"Create + Start of one more container",
	"Exec + Start + Wait of `true`",
	"Kill + Delete of a pod's last container",
	"PSS of a pod's overhead",
	"PSS for each further container",
}

// row is an operation with the medians of both runtimes.
type row struct {
	name, unit       string
	ours, theirs     float64
	worst, theirsBad float64 // the 90th percentiles
}

// median returns the middle sample, or the mean of the two in the middle. There is a sample.
func median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// percentile90 returns the 90th percentile by nearest rank.
func percentile90(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(int(math.Ceil(0.9*float64(len(sorted)))), 1)-1]
}

func (b bench) rows() ([]row, error) {
	var rows []row
	for _, name := range plotted {
		for _, op := range b.Operations {
			a, c := op.Samples[ours], op.Samples[theirs]
			if op.Name != name || len(a) == 0 || len(c) == 0 {
				continue
			}
			r := row{strings.ReplaceAll(name, "`", ""), op.Unit, median(a), median(c), percentile90(a), percentile90(c)}
			if r.theirs <= 0 || r.ours < 0 {
				return nil, fmt.Errorf("%s: the medians are %g and %g", name, r.ours, r.theirs)
			}
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("it has no operation of the plot with samples of native and of runc")
	}
	return rows, nil
}

// Of the plot, in pixels.
const (
	labelWidth = 290
	barWidth   = 340 // of the longest bar
	valueWidth = 150
	barHeight  = 14
	rowHeight  = 46
	headHeight = 60
	footHeight = 30
)

const (
	plotStyle   = `text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}.label{text-anchor:end}.small{font-size:11px;fill:#59636e}.head{font-size:15px;font-weight:bold}`
	oursColour  = "#0969da"
	theirColour = "#afb8c1"
)

// value returns a number with three significant digits.
func value(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// drawPlot draws a pair of bars for each operation. The length of runc's bar is the same in every
// row, and that of ours is in proportion to it, so that times and memory can be compared.
func drawPlot(source []byte) ([]byte, error) {
	var b bench
	if err := json.Unmarshal(source, &b); err != nil {
		return nil, err
	}
	if b.Version != 1 {
		return nil, fmt.Errorf("it has version %d", b.Version)
	}
	rows, err := b.rows()
	if err != nil {
		return nil, err
	}
	longest := 1.0
	for _, r := range rows {
		longest = max(longest, r.ours/r.theirs, r.worst/r.theirs, r.theirsBad/r.theirs)
	}
	unit := barWidth / longest
	var d drawing
	d.text(margin, 26, "head", "Less is better: this shim with the stage1 native, and runc's shim")
	d.rect(margin, 38, 10, 10, oursColour)
	d.text(margin+16, 47, "small", "native")
	d.rect(margin+76, 38, 10, 10, theirColour)
	d.text(margin+92, 47, "small", "runc. Medians; a line ends at the 90th percentile")
	for i, r := range rows {
		d.row(headHeight+float64(i)*rowHeight, unit, r)
	}
	height := float64(headHeight + len(rows)*rowHeight + footHeight)
	m := b.Machine
	d.text(margin, height-12, "small", fmt.Sprintf("Linux %s, %d × %s, containerd %s, runc %s", m.Kernel, m.Processors, m.Model, m.Containerd, m.Runc))
	return d.svg(labelWidth+barWidth+valueWidth, height, "#ffffff", plotStyle, title(rows)), nil
}

func (d *drawing) row(y, unit float64, r row) {
	d.text(labelWidth-10, y+20, "label", r.name)
	for i, bar := range []struct {
		median, bad float64
		colour      string
	}{{r.ours, r.worst, oursColour}, {r.theirs, r.theirsBad, theirColour}} {
		top := y + 3 + float64(i)*(barHeight+1)
		d.rect(labelWidth, top, bar.median/r.theirs*unit, barHeight, bar.colour)
		d.line(labelWidth, top+barHeight/2, labelWidth+bar.bad/r.theirs*unit, top+barHeight/2, "#59636e")
		text := value(bar.median) + " " + r.unit
		if i == 0 {
			text += fmt.Sprintf(" (%.2f ×)", r.ours/r.theirs)
		}
		d.text(labelWidth+max(bar.median, bar.bad)/r.theirs*unit+6, top+barHeight-3, "small", text)
	}
}

// title is the plot in words.
func title(rows []row) string {
	var words []string
	for _, r := range rows {
		words = append(words, fmt.Sprintf("%s: %s %s with native, %s with runc", r.name, value(r.ours), r.unit, value(r.theirs)))
	}
	return strings.Join(words, "; ")
}
