package shim_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirement is a section of docs/requirements.md.
type requirement struct {
	id           string
	must, source bool
	tests        []string // as "package TestName"
}

var (
	requirementLine = regexp.MustCompile(`^### <a id="([A-Z]\d{1,2})"></a>([A-Z]\d{1,2}) .`)
	citation        = regexp.MustCompile(`requirements\.md#(\w+)`)
	ownLink         = regexp.MustCompile(`\]\(#(\w+)\)`)
	// bareInComment and bareInString find an id that is cited without its document.
	bareInComment = regexp.MustCompile(`(?:^|[^\w#.|-])([A-Z]\d{1,2})\b`)
	bareInString  = regexp.MustCompile("[\"`(]([A-Z]\\d{1,2})[:,)]")
	idInTestName  = regexp.MustCompile(`^(?:Test|Fuzz)([A-Z]\d{1,2})[A-Z]`)
)

// readRequirements reads the page.
func readRequirements(page string) (all []requirement) {
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if m := requirementLine.FindStringSubmatch(line); m != nil && m[1] == m[2] {
			all = append(all, requirement{id: m[1]})
			continue
		} else if strings.HasPrefix(line, "### ") {
			all = append(all, requirement{id: line}) // an id that is no id
		}
		if len(all) == 0 {
			continue
		}
		r := &all[len(all)-1]
		r.must = r.must || strings.HasPrefix(line, "MUST. ")
		r.source = r.source || strings.HasPrefix(line, "*Source:* [")
		if m := testLine.FindStringSubmatch(line); m != nil {
			r.tests = append(r.tests, m[1]+" "+m[2])
		} else if strings.HasPrefix(line, "- ") {
			r.tests = append(r.tests, line) // does not exist
		}
	}
	return all
}

// problemsOfRequirements returns what is wrong with the page, given the tests that exist.
func problemsOfRequirements(page string, exist map[string]bool) (problems []string) {
	ids := map[string]bool{}
	for _, r := range readRequirements(page) {
		if ids[r.id] || strings.HasPrefix(r.id, "#") {
			problems = append(problems, r.id+": wrong, or there twice")
		}
		ids[r.id] = true
		if !r.source {
			problems = append(problems, r.id+": no source")
		}
		if r.must && len(r.tests) == 0 {
			problems = append(problems, r.id+": no test")
		}
		for _, test := range r.tests {
			if !exist[test] {
				problems = append(problems, r.id+": there is no test "+test)
			}
		}
	}
	for _, m := range ownLink.FindAllStringSubmatch(page, -1) {
		if !ids[m[1]] {
			problems = append(problems, "there is no "+m[1])
		}
	}
	return problems
}

// problemsOfCitations returns what is wrong with the citations in a Go file.
func problemsOfCitations(source string, ids map[string]bool) (problems []string) {
	for _, m := range citation.FindAllStringSubmatch(source, -1) {
		if !ids[m[1]] {
			problems = append(problems, "there is no "+m[0])
		}
	}
	bare := func(where *regexp.Regexp, text string) {
		for _, m := range where.FindAllStringSubmatch(text, -1) {
			if ids[m[1]] {
				problems = append(problems, fmt.Sprintf("%s without requirements.md#: %s", m[1], text))
			}
		}
	}
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(source)), []byte(source), nil, scanner.ScanComments)
	for {
		_, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return problems
		case token.COMMENT:
			bare(bareInComment, text)
		case token.STRING:
			bare(bareInString, text)
		case token.IDENT:
			bare(idInTestName, text)
		}
	}
}

func TestEveryRequirementHasASourceAndTestsThatExist(t *testing.T) {
	for _, p := range problemsOfRequirements(requirementsPage(t), testsOfTree(t)) {
		t.Error(p)
	}
}

func TestEveryCitationLeadsToARequirement(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range readRequirements(requirementsPage(t)) {
		ids[r.id] = true
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == "requirements_test.go" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, p := range problemsOfCitations(string(source), ids) {
			t.Errorf("%s: %s", path, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func requirementsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The check of the page can fail.
func TestAPageOfRequirementsThatIsWrongIsRefused(t *testing.T) {
	const good = "### <a id=\"T1\"></a>T1 Create\n\nMUST. So it is.\n\n*Source:* [x].\n\n- `pod` `TestA`\n"
	exist := map[string]bool{"pod TestA": true}
	for _, c := range []struct{ page, problem string }{
		{good, ""},
		{good + good, "T1: wrong, or there twice"},
		{strings.Replace(good, "T1 ", "T2 ", 1), "### <a id=\"T1\"></a>T2 Create: wrong, or there twice"},
		{strings.Replace(good, "Source", "Sources", 1), "T1: no source"},
		{strings.Replace(good, "- `pod` `TestA`\n", "", 1), "T1: no test"},
		{strings.Replace(good, "TestA", "TestB", 1), "T1: there is no test pod TestB"},
		{strings.Replace(good, "- `pod` ", "- ", 1), "T1: there is no test - `TestA`"},
		{strings.Replace(good, "So", "[So](#T2)", 1), "there is no T2"},
	} {
		if got := problemsOfRequirements(c.page, exist); !agrees(got, c.problem) {
			t.Errorf("problems %q, want %q", got, c.problem)
		}
	}
}

// The check of citations can fail.
func TestACitationThatIsWrongIsRefused(t *testing.T) {
	ids := map[string]bool{"T1": true}
	for _, c := range []struct{ source, problem string }{
		{"// create (requirements.md#T1), on XT1, C1 and -T1\nvar a = \"T1 x\"", ""},
		{"// requirements.md#T2", "there is no requirements.md#T2"},
		{"// create (T1)", "T1 without requirements.md#: // create (T1)"},
		{"var a = `error (T1)`", "T1 without requirements.md#: `error (T1)`"},
		{"var a = `T1: error`", "T1 without requirements.md#: `T1: error`"},
		{"func TestT1Create() {}", "T1 without requirements.md#: TestT1Create"},
	} {
		if got := problemsOfCitations("package x\n"+c.source+"\n", ids); !agrees(got, c.problem) {
			t.Errorf("problems %q, want %q", got, c.problem)
		}
	}
}

// agrees reports whether problems has the one that is wanted, or is empty as wanted.
func agrees(problems []string, want string) bool {
	if want == "" {
		return len(problems) == 0
	}
	return slices.Contains(problems, want)
}
