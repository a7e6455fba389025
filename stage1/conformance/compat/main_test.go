package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	got, err := replace("a\n<!-- kit -->\nold\n<!-- /kit -->\nz\n", "kit", "new\n")
	if want := "a\n<!-- kit -->\n\nnew\n\n<!-- /kit -->\nz\n"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, without := range []string{"", "<!-- kit -->\n", "<!-- /kit -->\n<!-- kit -->\n"} {
		if _, err := replace(without, "kit", ""); err == nil {
			t.Errorf("%q: no error", without)
		}
	}
}

func TestTablesHaveAColumnForEachImage(t *testing.T) {
	one := report{image: "one", Level: 3, Checks: []check{{"a/b", "it holds", "5", "passed", 1}}}
	one.Capabilities = append(one.Capabilities, struct{ Name, Value string }{"exec", "by enter"})
	two := report{image: "two", Level: 0, Checks: []check{{"a/b", "it holds", "5", "failed", 1}}}
	got := tables([]report{one, two})
	for _, want := range []string{"| `one` | `two` |\n| --- | --- | --- |\n", "| level | 3 | 0 |\n", "| exec | by enter | – |\n", "| `a/b` (1, 5): it holds | yes | **no** |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// `make compat` and `make test-kvm-kit` write the document. Run them after checks were added or changed.
func TestTheDocumentHasTheChecksThatThereAre(t *testing.T) {
	text, err := os.ReadFile("../../../docs/results/stage1-compat.md")
	if err != nil {
		t.Fatal(err)
	}
	for mark, target := range map[string]string{"kit": "compat", "kit-kvm": "test-kvm-kit"} {
		_, section, _ := strings.Cut(string(text), "<!-- "+mark+" -->\n")
		section, _, _ = strings.Cut(section, "<!-- /"+mark+" -->\n")
		all := conformance.Checks()
		for _, c := range all {
			if !strings.Contains(section, "| `"+c.ID+"` ("+string(rune('0'+c.Level))+", "+c.Section+"): "+c.Sentence+" |") {
				t.Errorf("%s is not in the document as it is: make %s", c.ID, target)
			}
		}
		if n := strings.Count(section, "\n| `"); n < len(all) {
			t.Errorf("%d rows for %d checks: make %s", n, len(all), target)
		}
		if strings.Contains(section, "**no**") {
			t.Errorf("an image fails a check, by the document: make %s", target)
		}
	}
}
