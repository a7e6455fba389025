package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// documentVariable names the environment variable with the file for the results.
const documentVariable = "RKT_TEST_DOCUMENT"

// history lists the known classes of escapes of runc, crun, youki and containerd's runtimes.
// The document has each of them, with its attacks or with the reason why there are none.
func history() []string {
	return []string{
		"CVE-2016-9962", "CVE-2019-5736", "CVE-2019-16884", "CVE-2019-19921", "CVE-2020-15257", "CVE-2021-30465", "CVE-2021-41103",
		"CVE-2022-24769", "CVE-2022-29162", "CVE-2023-25809", "CVE-2023-27561", "CVE-2023-28642", "CVE-2024-21626",
		"CVE-2024-25621", "CVE-2024-45310", "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881", "CVE-2026-30892", "CVE-2026-41579",
	}
}

// elsewhere lists classes that do not concern a shim or its stage1s, with the reason.
func elsewhere() [][2]string {
	return [][2]string{
		{"CVE-2021-43816", "containerd relabelled what a volume's links led to. CRI's code; no shim labels volumes."},
		{"CVE-2022-23648", "containerd copied what an image's volume led to. CRI's code; no shim copies volumes."},
		{"CVE-2022-27650", "crun's default spec had inheritable capabilities, as Docker's and containerd's: CVE-2022-24769."},
		{"CVE-2025-24965", "crun's krun handler wrote a file below the image's root. It is not in the path of any stage1."},
		{"CVE-2025-54867, CVE-2025-62161, CVE-2025-62596", "youki followed links of a root, and masked with what was at /dev/null: CVE-2025-31133 and CVE-2025-52881, by another name."},
		{"CVE-2025-64329", "containerd's Attach leaked goroutines. CRI's code; attaching to our processes is tried by the CRI suites."},
		{"CVE-2026-50195, CVE-2026-53492", "containerd believed the metadata of checkpoints. CRI's code, which makes the spec before a shim sees it."},
		{"CVE-2026-53488", "containerd's CRI took labels of an image for a container's, and its restart monitor executed a logger that a label named. The shim reads no labels, and executes loggers only for clients of containerd's socket."},
		{"CVE-2026-53489", "containerd's; what was published has no details to try."},
	}
}

func TestNoClassIsNamedTwice(t *testing.T) {
	all := history()
	for _, e := range elsewhere() {
		all = append(all, strings.Split(e[0], ", ")...)
	}
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("of %q some are there twice", all)
	}
}

func TestTheDocumentSaysWhatWonAndWhy(t *testing.T) {
	class := result{Classes: "CVE-2019-5736", Attack: "overwrite", Mode: "exec", Proofs: []string{runcRC6}}
	of := func(column string, edit func(*result)) *result {
		r := class
		r.Column = column
		edit(&r)
		return &r
	}
	const earlier = "# Head\n\n## CVE-2019-5736: overwrite\n\nan earlier run\n\n## CVE-2016-9962: hunt\n\n| kept |\n\nRun: then.\n\n## Classes that are met elsewhere\n\nold\n"
	text := pageOf(false).render([]*result{
		of("native", func(r *result) { r.Tries, r.Refused = 1000, 7 }),
		of("oci", func(r *result) { r.Tries, r.Wins, r.Reason = 10, 2, "runc's" }),
		of("nspawn", func(r *result) { r.NotTried = "not installed" }),
		of(currentRunc, func(r *result) { r.Tries, r.Wins, r.Loot = 10, 1, []string{"a file"} }),
		of(runcRC6, func(r *result) { r.Tries, r.Wins = 3, 1 }),
	}, "now", earlier)
	for _, want := range []string{
		"## CVE-2019-5736: overwrite\n",
		"| exec | 0 of 1000 (7) | **2 of 10** [1] | – [2] | **1 of 10** [3] | runc 1.0.0-rc6: 1 of 3 |\n",
		"1. runc's.\n2. not installed.\n3. a file.\n\nRun: now.\n",
		"## CVE-2016-9962: hunt\n\n| kept |\n\nRun: then.\n\n## CVE-2019-5736",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "an earlier run") || strings.Contains(text, "\nold\n") {
		t.Errorf("what was replaced is still there:\n%s", text)
	}
}

// writeDocument writes the results to the file that documentVariable names. Attacks of which not every mode was
// tried keep their earlier sections.
func writeDocument(ctx context.Context, e enclosure.Enclosure) error {
	to := os.Getenv(documentVariable)
	if to == "" {
		return nil
	}
	all, err := readResults(e.Path(resultsFile))
	if err != nil {
		return err
	}
	if !machines.Only() {
		if err := writeRecord(all); err != nil {
			return err
		}
	}
	run, err := provenance(ctx, e)
	if err != nil {
		return err
	}
	earlier, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	text := pageOf(machines.Only()).render(whole(all), run, string(earlier))
	for _, class := range history() {
		if !strings.Contains(text, class) {
			return fmt.Errorf("%s has no attack in %s: run the whole suite once", class, to)
		}
	}
	return os.WriteFile(to, []byte(text), 0o644)
}

// whole returns the results of attacks of which every mode was tried.
func whole(all []*result) []*result {
	partly := map[string]bool{}
	compared := map[string]bool{}
	for _, r := range all {
		partly[r.key().heading] = partly[r.key().heading] || r.Missing
		compared[r.key().heading] = compared[r.key().heading] || r.Holes != nil
	}
	for heading := range partly { // the older releases take part in the long form only
		partly[heading] = partly[heading] || !long && !compared[heading]
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *result) bool { return partly[r.key().heading] })
}

// provenance returns the date and the commit of this run, and the versions of the programs that were tested.
func provenance(ctx context.Context, e enclosure.Enclosure) (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	kernel, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-") // without the suffix of a build
	tries, limit := bounds()
	text := fmt.Sprintf("%s, %s; races %d times or for %s; Linux %s, %s", time.Now().UTC().Format(time.DateOnly), commit(ctx),
		tries, limit, kernel, unix.ByteSliceToString(u.Machine[:]))
	for _, program := range []string{e.Path(runcDir) + "/runc", e.Path(programsDir) + "/containerd", "/usr/bin/systemd-nspawn"} {
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			return "", fmt.Errorf("%s --version: %w", program, err)
		}
		first, _, _ := strings.Cut(string(out), "\n")
		first = strings.NewReplacer("github.com/containerd/containerd/v2", "", " version", "", "+unknown", "").Replace(first)
		text += "; " + first
	}
	return strings.Join(strings.Fields(text), " "), nil
}

// commit returns the commit that was tested, as far as git knows it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "not from a repository"
	}
	return strings.TrimSpace(string(out))
}

// page is the document of a run.
type page struct {
	head  string
	shown []string // the columns
	// proofs is set if older releases were attacked in the same run.
	proofs bool
}

// pageOf returns docs/results/hostile.md, or hostile-kvm.md.
func pageOf(machines bool) page {
	const cells = `A cell is how often an attack won, of so many tries; in brackets, how many of these were
refused, that is, the container or the exec was not made. `
	if machines {
		return page{shown: []string{"kvm"}, head: `# What hostile neighbours got in a machine

` + "`make test-kvm-hostile`" + ` writes this file; integration/hostile has the attacks.

Attackers and victims are apps of one machine of the stage1 ` + "`kvm`" + `. An attack wins if it reaches a file of
the host or of the machine's own root, a process of the machine with more rights than its container, or
what is not the container's in another way. [hostile.md](hostile.md) names the releases against which the
same attacks win.

` + cells + `Numbers in square brackets are notes, below the table. Each section names its run. A run of
some attacks leaves the other sections as they are.

`}
	}
	return page{shown: []string{"native", "oci", "nspawn", currentRunc}, proofs: true, head: fmt.Sprintf(`# What hostile neighbours got

`+"`make test-hostile`"+` writes this file; integration/hostile has the attacks.

`+cells+`"Shown by" is an older release against which the same attack wins in the same run:
releases of runc, and this repository at commit %s, before the repairs. Numbers in
square brackets are notes, below the table. Each section names its run; a run of some attacks leaves the other
sections as they are.

`, earlier)}
}

// render returns the text of the page: sections of these results, and of an earlier page those of other
// attacks.
func (p page) render(all []*result, run, earlier string) string {
	sections := sectionsOf(earlier)
	for _, heading := range headings(all) {
		sections[heading] = p.section(heading, all, run)
	}
	delete(sections, elsewhereHeading)
	var b strings.Builder
	b.WriteString(p.head)
	for _, heading := range slices.SortedFunc(maps.Keys(sections), byYear) {
		fmt.Fprintf(&b, "## %s\n\n%s\n", heading, sections[heading])
	}
	if !p.proofs {
		return b.String()
	}
	table := [][]string{{"class", "why it has no attack here"}}
	for _, e := range elsewhere() {
		table = append(table, e[:])
	}
	fmt.Fprintf(&b, "## %s\n\n%s", elsewhereHeading, document.Table(table))
	return b.String()
}

const elsewhereHeading = "Classes that are met elsewhere"

// sectionsOf returns the sections of a page, by their headings.
func sectionsOf(page string) map[string]string {
	all := map[string]string{}
	for i, part := range strings.Split("\n"+page, "\n## ") {
		if heading, text, ok := strings.Cut(part, "\n"); ok && i > 0 {
			all[heading] = strings.TrimSpace(text) + "\n"
		}
	}
	return all
}

// section returns the table of an attack, its notes and its run.
func (p page) section(heading string, all []*result, run string) string {
	notes := &notes{}
	var text string
	of := slices.DeleteFunc(slices.Clone(all), func(r *result) bool { return r.key().heading != heading })
	if slices.ContainsFunc(of, func(r *result) bool { return r.Holes != nil }) {
		text = p.verdicts(of)
	} else {
		rows := [][]string{append([]string{"mode"}, p.shown...)}
		if p.proofs {
			rows[0] = append(rows[0], "shown by")
		}
		for _, key := range keys(of) {
			rows = append(rows, p.row(of, key, notes))
		}
		text = document.Table(rows) + "\n"
	}
	for i, n := range notes.all {
		text += fmt.Sprintf("%d. %s.\n", i+1, strings.TrimSuffix(n, "."))
	}
	if len(notes.all) > 0 {
		text += "\n"
	}
	return text + "Run: " + run + ".\n"
}

// rowKey identifies a row.
type rowKey struct{ heading, mode string }

func (r *result) key() rowKey { return rowKey{r.Classes + ": " + r.Attack, r.Mode} }

// keys returns the rows in the order of the tests.
func keys(all []*result) (keys []rowKey) {
	for _, r := range all {
		if !slices.Contains(keys, r.key()) {
			keys = append(keys, r.key())
		}
	}
	return keys
}

func headings(all []*result) (headings []string) {
	for _, r := range all {
		if !slices.Contains(headings, r.key().heading) {
			headings = append(headings, r.key().heading)
		}
	}
	return headings
}

// byYear compares headings by the first class that they name.
func byYear(a, b string) int {
	year := func(heading string) string {
		_, after, found := strings.Cut(heading, "CVE-")
		if !found {
			return "9"
		}
		class, _, _ := strings.Cut(after+":", ":")
		class, _, _ = strings.Cut(class, ",")
		y, n, _ := strings.Cut(class, "-")
		return y + fmt.Sprintf("%8s", n)
	}
	return cmp.Or(cmp.Compare(year(a), year(b)), cmp.Compare(a, b))
}

func (p page) row(all []*result, key rowKey, notes *notes) []string {
	cells := []string{key.mode}
	for _, column := range p.shown {
		cells = append(cells, cell(find(all, key, column), notes))
	}
	if !p.proofs {
		return cells
	}
	var proofs []string
	for _, r := range all {
		if r.key() == key && slices.Contains(r.Proofs, r.Column) {
			proofs = append(proofs, fmt.Sprintf("%s: %d of %d", r.Column, r.Wins, r.Tries))
		}
	}
	if any := all[slices.IndexFunc(all, func(r *result) bool { return r.key() == key })]; len(proofs) == 0 {
		proofs = append(proofs, "–"+notes.of(any.Unproved))
	}
	return append(cells, strings.Join(proofs, ", "))
}

func find(all []*result, key rowKey, column string) *result {
	for _, r := range all {
		if r.key() == key && r.Column == column {
			return r
		}
	}
	return nil
}

func cell(r *result, notes *notes) string {
	if r == nil {
		return ""
	}
	if r.NotTried != "" {
		return "–" + notes.of(r.NotTried)
	}
	text := fmt.Sprintf("%d of %d", r.Wins, r.Tries)
	if r.Refused > 0 {
		text += fmt.Sprintf(" (%d)", r.Refused)
	}
	if r.Wins == 0 {
		return text
	}
	return "**" + text + "**" + notes.of(cmp.Or(r.Reason, strings.Join(r.Loot, "; ")))
}

// notes are numbered in the order in which they are first used.
type notes struct{ all []string }

func (n *notes) of(text string) string {
	if text == "" {
		return ""
	}
	i := slices.Index(n.all, text)
	if i < 0 {
		i = len(n.all)
		n.all = append(n.all, text)
	}
	return fmt.Sprintf(" [%d]", i+1)
}
