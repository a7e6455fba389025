package pod

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// tableHead is the first line of a table of states in docs/lifecycle.md.
const tableHead = "| state | step | next | who |"

// tablesOf returns the tables of states in a page, by the heading above them: each
// row as "state step next", once for each state that it lists.
func tablesOf(page string) map[string][]string {
	tables := map[string][]string{}
	heading, inside := "", false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ")
		case line == tableHead:
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && !strings.HasPrefix(line, "|---"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if len(cells) != 4 {
				tables[heading] = append(tables[heading], line) // is none, and will not be found
				continue
			}
			for state := range strings.SplitSeq(cells[0], ",") {
				tables[heading] = append(tables[heading], fmt.Sprint(strings.TrimSpace(state), " ", strings.TrimSpace(cells[1]), " ", strings.TrimSpace(cells[2])))
			}
		}
	}
	return tables
}

// rowsOf returns a table of the code in the same form.
func rowsOf[S, T comparable](transitions map[S]map[T]S) (rows []string) {
	for state, steps := range transitions {
		for step, next := range steps {
			rows = append(rows, fmt.Sprint(state, " ", step, " ", next))
		}
	}
	return rows
}

// problemsOfTables lists the differences between a page and the tables of the
// code.
func problemsOfTables(page string, code map[string][]string) (problems []string) {
	tables := tablesOf(page)
	for heading, rows := range tables {
		if _, ok := code[heading]; !ok {
			problems = append(problems, fmt.Sprintf("%s: the code has no such table", heading))
			continue
		}
		for i, row := range rows {
			if !slices.Contains(code[heading], row) {
				problems = append(problems, fmt.Sprintf("%s: the code has no %q", heading, row))
			}
			if slices.Contains(rows[:i], row) {
				problems = append(problems, fmt.Sprintf("%s: %q is there twice", heading, row))
			}
		}
	}
	for heading, rows := range code {
		for _, row := range rows {
			if !slices.Contains(tables[heading], row) {
				problems = append(problems, fmt.Sprintf("%s: the page has no %q", heading, row))
			}
		}
	}
	return problems
}

func TestThePageOfLifecyclesHasTheTablesOfTheCode(t *testing.T) {
	page, err := os.ReadFile("../docs/lifecycle.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problemsOfTables(string(page), map[string][]string{
		"Apps and execs": rowsOf(transitions),
		"Pods":           rowsOf(sessionTransitions),
		"Sandboxes":      rowsOf(sandboxTransitions),
	}) {
		t.Error(p)
	}
}

// The check of the page can fail.
func TestAPageOfLifecyclesThatIsWrongIsRefused(t *testing.T) {
	code := map[string][]string{"Doors": {"open shut closed", "ajar shut closed", "closed push open"}}
	const good = "## Doors\n\n" + tableHead + "\n|---|---|---|---|\n| open, ajar | shut | closed | x |\n| closed | push | open | y |\n"
	for _, c := range []struct{ page, problem string }{
		{good, ""},
		{good + "\n| RPC | wants |\n|---|---|\n| Start | open |\n", ""},
		{good + "| closed | shut | closed | x |\n", `Doors: the code has no "closed shut closed"`},
		{good + "| closed | push | open | x |\n", `Doors: "closed push open" is there twice`},
		{good + "| closed | push |\n", `Doors: the code has no "| closed | push |"`},
		{strings.Replace(good, "open, ajar", "open", 1), `Doors: the page has no "ajar shut closed"`},
		{strings.Replace(good, "push | open", "push | ajar", 1), `Doors: the page has no "closed push open"`},
		{strings.Replace(good, "Doors", "Windows", 1), "Windows: the code has no such table"},
		{"", `Doors: the page has no "open shut closed"`},
	} {
		got := problemsOfTables(c.page, code)
		if c.problem == "" && len(got) > 0 || c.problem != "" && !slices.Contains(got, c.problem) {
			t.Errorf("problems %q, want %q", got, c.problem)
		}
	}
}

// A state without a name of its own would make rows of the page ambiguous.
func TestEveryStateHasAName(t *testing.T) {
	for what, c := range map[string]struct {
		names []string
		last  int
	}{
		"states":              {stateNames[:], int(Deleted)},
		"states of sessions":  {sessionStateNames[:], int(sessionGone)},
		"states of sandboxes": {sandboxStateNames[:], int(SandboxStopped)},
	} {
		unique := map[string]bool{}
		for _, name := range c.names {
			unique[name] = true
		}
		if len(unique) != len(c.names) || len(unique) != c.last+1 || unique[""] {
			t.Errorf("%s: %q", what, c.names)
		}
	}
}
