package metrics

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// label is a name and a value.
type label struct{ name, value string }

// line returns the name of a metric with its labels, as the text format has it.
func line(name string, labels ...label) string {
	if len(labels) == 0 {
		return name
	}
	var all []string
	for _, l := range labels {
		value := strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(l.value, "?"))
		all = append(all, l.name+`="`+value+`"`)
	}
	slices.Sort(all)
	return name + "{" + strings.Join(all, ",") + "}"
}

// registry has gauges by their lines.
type registry struct{ values map[string]float64 }

func newRegistry() *registry { return &registry{map[string]float64{}} }

func (r *registry) add(name string, n float64, labels ...label) { r.values[line(name, labels...)] += n }
func (r *registry) set(name string, n float64, labels ...label) { r.values[line(name, labels...)] = n }

func (s *state) add(name string, n float64, labels ...label) { s.Counters[line(name, labels...)] += n }
func (s *state) count(name string, labels ...label)          { s.add(name, 1, labels...) }

// buckets are the upper bounds of histograms, in seconds.
var buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// observe adds a value to a histogram.
func (s *state) observe(name string, value float64, labels ...label) {
	for _, b := range buckets {
		n := 0.0
		if value <= b {
			n = 1
		}
		s.add(name+"_bucket", n, append(slices.Clone(labels), label{"le", number(b)})...)
	}
	s.count(name+"_bucket", append(slices.Clone(labels), label{"le", "+Inf"})...)
	s.add(name+"_sum", value, labels...)
	s.count(name+"_count", labels...)
}

// bounded returns a value of a label, or other if the label has too many values already.
func (s *state) bounded(name, value string, most int) string {
	if len(value) > 64 {
		value = other
	}
	if value == other || slices.Contains(s.Values[name], value) {
		return value
	}
	if len(s.Values[name]) >= most {
		return other
	}
	s.Values[name] = append(s.Values[name], value)
	return value
}

// family describes a metric.
type family struct{ name, kind, help string }

// families are all metrics, in the order of the text.
var families = []family{
	{"rkt_pods", "gauge", "Pods by state and stage1."},
	{"rkt_pods_without_shim", "gauge", "Running pods whose shim has ended."},
	{"rkt_pods_with_damaged_records", "gauge", "Pods with a record that cannot be read."},
	{"rkt_apps", "gauge", "Apps by state."},
	{"rkt_processes", "gauge", "Processes of the runtime."},
	{"rkt_processes_resident_bytes", "gauge", "Sum of the resident memory of these processes. They share most of it."},
	{"rkt_collection_seconds", "gauge", "Time that the last collection has taken."},
	{"rkt_pods_seen_total", "counter", "Pods that a collection has seen for the first time."},
	{"rkt_entrypoint_seconds", "histogram", "Duration of calls of entrypoints; of run and enter until they are ready."},
	{"rkt_entrypoint_failures_total", "counter", "Calls of entrypoints that have failed, by exit code."},
	{"rkt_failed_starts_total", "counter", "Starts of pods and apps that have failed, by step."},
	{"rkt_refused_fields_total", "counter", "Starts that have failed because of a field of config.json."},
	{"rkt_spans_waiting", "gauge", "Spans that were not sent yet."},
	{"rkt_spans_sent_total", "counter", "Spans that were sent."},
	{"rkt_spans_dropped_total", "counter", "Spans that were not sent, because they were refused or too many waited."},
	{"rkt_unknown_fields_total", "counter", "Fields that were ignored, because no OCI runtime spec has them."},
}

// Write writes all metrics of the last collection.
func (c *Collector) Write(w io.Writer) error {
	all := maps.Clone(c.state.Counters)
	if c.gauges != nil {
		maps.Copy(all, c.gauges.values)
	}
	lines := slices.Sorted(maps.Keys(all))
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, l := range lines {
			name, _, _ := strings.Cut(l, "{")
			if f.kind == "histogram" {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					name = strings.TrimSuffix(name, suffix)
				}
			}
			if name == f.name {
				fmt.Fprintf(&b, "%s %s\n", l, number(all[l]))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func number(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
