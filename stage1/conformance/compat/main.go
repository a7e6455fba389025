// Command compat writes the results of rktctl stage1 verify for some stage1 images into a
// document, as tables between <!-- kit --> and <!-- /kit -->, or other marks.
//
//	compat -rktctl bin/rktctl -document docs/results/stage1-compat.md bin/stage1/native …
//	compat -rktctl bin/rktctl -document docs/results/stage1-compat.md -mark kit-kvm -timeout 10m …
//
// The image "guide" is the skeleton of the authors' guide.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// guide is the name of the skeleton on the command line and in the tables.
const guide = "guide"

func main() {
	log.SetFlags(0)
	log.SetPrefix("compat: ")
	rktctl := flag.String("rktctl", "bin/rktctl", "`path` of rktctl")
	document := flag.String("document", "docs/results/stage1-compat.md", "`file` to write into")
	mark := flag.String("mark", "kit", "`name` of the marks around the tables")
	timeout := flag.String("timeout", "", "the `time` that one check may take, instead of rktctl's own")
	flag.Parse()
	var options []string
	if *timeout != "" {
		options = []string{"--timeout", *timeout}
	}
	if err := run(*rktctl, options, *document, *mark, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(rktctl string, options []string, document, mark string, images []string) error {
	var reports []report
	for _, image := range images {
		r, err := verify(rktctl, options, image)
		if err != nil {
			return fmt.Errorf("%s: %w", image, err)
		}
		reports = append(reports, r)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	changed, err := replace(string(text), mark, tables(reports))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(changed), 0o644)
}

// report has the fields of stage1 verify's JSON that are used here.
type report struct {
	image        string
	Level        int
	Checks       []check
	Capabilities []struct{ Name, Value string }
	Unseen       []struct{ Field string } `json:"declaredAndNotSeen"`
	Overhead     struct{ PodBytes, FurtherAppBytes float64 }
}

type check struct {
	ID, Sentence, Section, Outcome string
	Level                          int
}

func verify(rktctl string, options []string, image string) (report, error) {
	r := report{image: filepath.Base(image)}
	if image == guide {
		dir, err := os.MkdirTemp("", "compat-")
		if err != nil {
			return r, err
		}
		defer os.RemoveAll(dir)
		image = filepath.Join(dir, guide)
		if out, err := exec.Command(rktctl, "stage1", "init", image).CombinedOutput(); err != nil {
			return r, fmt.Errorf("%w: %s", err, out)
		}
	}
	cmd := exec.Command(rktctl, slices.Concat([]string{"stage1", "verify", "--json"}, options, accepted(image), []string{image})...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

// accepted returns the fields that an image may ignore according to its README.
func accepted(image string) []string {
	if filepath.Base(image) != "fly" {
		return nil
	}
	return []string{"--accept", "appc", "--accept", "/process/capabilities", "--accept", "/linux/seccomp"}
}

// replace puts text between the marks of a document that have a name.
func replace(document, mark, text string) (string, error) {
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->\n"
	before, rest, ok := strings.Cut(document, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("it has no %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + text + "\n" + end + after, nil
}

// tables renders the reports. All reports must have the same checks.
func tables(reports []report) string {
	var b bytes.Buffer
	row := func(head string, cell func(r report) string) {
		fmt.Fprintf(&b, "| %s |", head)
		for _, r := range reports {
			fmt.Fprintf(&b, " %s |", cell(r))
		}
		b.WriteByte('\n')
	}
	head := func(what string) {
		row(what, func(r report) string { return "`" + r.image + "`" })
		row("---", func(report) string { return "---" })
	}
	head("")
	row("level", func(r report) string { return fmt.Sprint(r.Level) })
	for _, c := range reports[0].Capabilities {
		row(c.Name, func(r report) string { return r.capability(c.Name) })
	}
	row("declared, and not seen by any check", report.unseen)
	row("memory of a pod beside the shim", func(r report) string { return mebibytes(r.Overhead.PodBytes) })
	row("and of each further app", func(r report) string { return mebibytes(r.Overhead.FurtherAppBytes) })
	b.WriteByte('\n')
	head("check (level, section of the ABI)")
	for i, c := range reports[0].Checks {
		row(fmt.Sprintf("`%s` (%d, %s): %s", c.ID, c.Level, c.Section, c.Sentence), func(r report) string {
			return map[string]string{"passed": "yes", "absent": "–", "failed": "**no**"}[r.Checks[i].Outcome]
		})
	}
	return b.String()
}

func (r report) capability(name string) string {
	for _, c := range r.Capabilities {
		if c.Name == name {
			return c.Value
		}
	}
	return "–"
}

// unseen lists the fields that the image declares and no check has seen.
func (r report) unseen() string {
	var fields []string
	for _, u := range r.Unseen {
		fields = append(fields, "`"+u.Field+"`")
	}
	return cmp.Or(strings.Join(fields, ", "), "nothing")
}

func mebibytes(n float64) string { return fmt.Sprintf("%.2f MiB", n/(1<<20)) }
