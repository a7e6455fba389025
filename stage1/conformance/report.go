package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Report has the results for an image.
type Report struct {
	Image        string       `json:"image"`
	Name         string       `json:"name"`
	Digest       string       `json:"digest"`
	Seed         uint32       `json:"seed"`    // of the values that the checks have asked for
	Level        Level        `json:"level"`   // the level that the results prove
	Claimed      Level        `json:"claimed"` // the level that was asked for, or 0
	Holds        bool         `json:"holds"`
	Whole        bool         `json:"whole"` // every check of the claimed level was run
	Results      []Result     `json:"checks"`
	Capabilities []Capability `json:"capabilities"`
	// Unchecked are fields that the image declares and whose effect no check has verified.
	Unchecked []Unchecked `json:"declaredAndNotSeen,omitempty"`
	Overhead  *Overhead   `json:"overhead,omitempty"`
}

// Judge sets the fields that follow from the results. With a claimed level the image passes
// if it reaches that level, otherwise if no check has failed.
func (r *Report) Judge() {
	r.Holds = len(r.Results) > 0
	for i := range r.Results {
		result := &r.Results[i]
		if result.Outcome == Failed || r.Claimed > 0 && r.Whole && result.Level <= r.Claimed && result.breaks() {
			r.Holds = false
		}
	}
	if r.Whole {
		r.Level = LevelOf(r.Results)
		if r.Claimed > 0 {
			r.Level = min(r.Level, r.Claimed)
		}
	}
}

// butFor returns the level that the stage1 would have without its failed checks up to that level, and the
// ids of these checks.
func (r *Report) butFor() (level Level, failed []string) {
	level = LevelOf(slices.DeleteFunc(slices.Clone(r.Results), func(c Result) bool { return c.Outcome == Failed }))
	if r.Claimed > 0 {
		level = min(level, r.Claimed) // no check of a higher one was run
	}
	for _, c := range r.Results {
		if c.Outcome == Failed && c.Level <= level {
			failed = append(failed, c.ID)
		}
	}
	return level, failed
}

// MarshalJSON writes a result as a single object, with the fields of its check.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID       string            `json:"id"`
		Level    Level             `json:"level"`
		Sentence string            `json:"sentence"`
		Section  string            `json:"section"`
		Outcome  Outcome           `json:"outcome"`
		Reason   Reason            `json:"reason,omitempty"`
		Words    string            `json:"words,omitempty"`
		Seconds  float64           `json:"seconds"`
		Notes    map[string]string `json:"notes,omitempty"`
		Kept     string            `json:"kept,omitempty"`
	}{r.ID, r.Level, r.Sentence, r.Section, r.Outcome, r.Reason, r.Words, r.Duration.Seconds(), r.Notes, r.Kept})
}

// WriteJSON writes the report as a JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// TAP writes results in the Test Anything Protocol, version 14, as they arrive.
type TAP struct {
	w io.Writer
	n int
}

// NewTAP begins a document of some checks, which ask for the values of a seed.
func NewTAP(w io.Writer, checks int, seed uint32) *TAP {
	fmt.Fprintf(w, "TAP version 14\n1..%d\n# seed %d: with --seed %d the checks ask for the same values again\n", checks, seed, seed)
	return &TAP{w: w}
}

// Result writes one result.
func (t *TAP) Result(r Result) {
	t.n++
	ok, skip := "ok", ""
	switch r.Outcome {
	case Failed:
		ok = "not ok"
	case Absent:
		skip = fmt.Sprintf(" # SKIP %s: %s", r.Reason, firstLine(abi.Printable(r.Words)))
	}
	fmt.Fprintf(t.w, "%s %d - %s: %s%s\n", ok, t.n, r.ID, strings.ReplaceAll(r.Sentence, "#", `\#`), skip)
	if r.Outcome != Failed {
		return
	}
	fmt.Fprintf(t.w, "  ---\n  message: |\n")
	for line := range strings.SplitSeq(abi.Printable(r.Words), "\n") {
		fmt.Fprintf(t.w, "    %s\n", line)
	}
	fmt.Fprintf(t.w, "  level: %d\n  section: docs/stage1-abi.md, section %s\n  duration_ms: %d\n", r.Level, r.Section, r.Duration.Milliseconds())
	if r.Kept != "" {
		fmt.Fprintf(t.w, "  kept: %s\n", r.Kept)
	}
	fmt.Fprintln(t.w, "  ...")
}

// Bail ends the document before all checks were run.
func (t *TAP) Bail(why string) {
	fmt.Fprintf(t.w, "Bail out! %s\n", strings.ReplaceAll(abi.Printable(why), "\n", "; "))
}

// End writes the summary of a report, as comments.
func (t *TAP) End(r *Report) {
	fmt.Fprintf(t.w, "#\n# stage1 %s, %s\n# %s\n", r.Name, r.Image, r.Digest)
	for _, c := range r.Capabilities {
		fmt.Fprintf(t.w, "#   %-33s %s\n", c.Name, c.Value)
	}
	if len(r.Unchecked) > 0 {
		fmt.Fprintln(t.w, "# declared, and not seen by any check:")
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(t.w, "#   %-33s %s: %s\n", u.Field, u.Reason, firstLine(abi.Printable(u.Words)))
	}
	if o := r.Overhead; o != nil {
		fmt.Fprintf(t.w, "# memory of the stage1, beside the shim: %s for a pod with one app (%d processes), %s for each further one\n",
			kibibytes(o.Pod), o.Process, kibibytes(o.PerApp))
	}
	if r.Whole {
		fmt.Fprintf(t.w, "# level %d: %s\n", r.Level, r.Level)
		for i := range r.Results {
			if b := &r.Results[i]; b.breaks() && b.Level == r.Level+1 {
				fmt.Fprintf(t.w, "#   not level %d: %s: %s\n", b.Level, b.ID, firstLine(b.Words))
			}
		}
		if level, failed := r.butFor(); level > r.Level && len(failed) > 0 {
			fmt.Fprintf(t.w, "# level %d but for %d: %s\n", level, len(failed), strings.Join(failed, ", "))
		}
	}
	if r.Claimed > 0 && r.Whole {
		fmt.Fprintf(t.w, "# the claimed level %d %s\n", r.Claimed, map[bool]string{true: "holds", false: "does not hold"}[r.Holds])
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func kibibytes(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
