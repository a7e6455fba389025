package shim_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// lists are the lists of docs/stage1-rkt-traps.md, and how long they are.
var lists = map[string]int{"Traps": 12, "Checklist": 14}

var (
	entryLine = regexp.MustCompile(`^(\d+)\. `)
	shownLine = regexp.MustCompile("^ +- `([\\w/]+)` `((?:Test|Fuzz)\\w+)`$")
)

// problemsOfTraps says what is wrong with the page, if these tests exist.
func problemsOfTraps(page string, exist map[string]bool) (problems []string) {
	list, entries, shown := "", 0, 0
	ends := func() { // the entry that the page is at
		if entries > 0 && shown == 0 {
			problems = append(problems, fmt.Sprintf("%s %d: no test", list, entries))
		}
		shown = 0
	}
	over := func() {
		ends()
		if want, counted := lists[list]; counted && entries != want {
			problems = append(problems, fmt.Sprintf("%s: %d entries, and not %d", list, entries, want))
		}
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			over()
			list, entries = title, 0
		} else if m := entryLine.FindStringSubmatch(line); m != nil {
			ends()
			entries++
			if m[1] != fmt.Sprint(entries) {
				problems = append(problems, fmt.Sprintf("%s %s: it is number %d", list, m[1], entries))
			}
		} else if m := shownLine.FindStringSubmatch(line); m != nil {
			shown++
			if test := m[1] + " " + m[2]; !exist[test] {
				problems = append(problems, fmt.Sprintf("%s %d: there is no test %s", list, entries, test))
			}
		}
	}
	over()
	return problems
}

func TestRktsTrapsHaveTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/stage1-rkt-traps.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problemsOfTraps(string(page), testsOfTree(t)) {
		t.Error(p)
	}
}

// The check of the page can fail.
func TestAPageOfRktsTrapsThatIsWrongIsRefused(t *testing.T) {
	page := func(change int, with string) string {
		var b strings.Builder
		for _, list := range []string{"Traps", "Checklist"} {
			b.WriteString("## " + list + "\n\n")
			for i := 1; i <= lists[list]; i++ {
				text := fmt.Sprintf("%d. So it is.\n   - `pod` `TestA`\n", i)
				if list == "Traps" && i == change {
					text = with
				}
				b.WriteString(text)
			}
		}
		return b.String()
	}
	exist := map[string]bool{"pod TestA": true}
	for _, c := range []struct{ page, problem string }{
		{page(0, ""), ""},
		{page(12, ""), "Traps: 11 entries, and not 12"},
		{page(3, "4. So it is.\n   - `pod` `TestA`\n"), "Traps 4: it is number 3"},
		{page(3, "3. So it is.\n"), "Traps 3: no test"},
		{page(3, "3. So it is.\n   - `pod` `TestB`\n"), "Traps 3: there is no test pod TestB"},
	} {
		if got := problemsOfTraps(c.page, exist); !agrees(got, c.problem) {
			t.Errorf("problems %q, want %q", got, c.problem)
		}
	}
}
