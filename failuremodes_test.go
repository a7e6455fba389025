package shim_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// modes is how many ways to fail docs/failure-modes.md has.
const modes = 20

// failureMode is a section of docs/failure-modes.md: where shims have failed in that
// way, and the tests that would notice it, as "package TestName".
type failureMode struct {
	number, title string
	issues, tests []string
}

var (
	modeLine  = regexp.MustCompile(`^## (\d+)\. (.+)$`)
	issueLink = regexp.MustCompile(`\]\(https://github\.com/[\w-]+/[\w-]+/(?:issues|pull)/\d+\)`)
	testLine  = regexp.MustCompile("^- `([\\w/-]+)` `(Test\\w+)`")
)

// readFailureModes reads the page.
func readFailureModes(page string) (all []failureMode) {
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if m := modeLine.FindStringSubmatch(line); m != nil {
			all = append(all, failureMode{number: m[1], title: m[2]})
			continue
		}
		if len(all) == 0 {
			continue
		}
		mode := &all[len(all)-1]
		mode.issues = append(mode.issues, issueLink.FindAllString(line, -1)...)
		if m := testLine.FindStringSubmatch(line); m != nil {
			mode.tests = append(mode.tests, m[1]+" "+m[2])
		} else if strings.HasPrefix(line, "- ") {
			mode.tests = append(mode.tests, line) // is none, and will not be found
		}
	}
	return all
}

// problemsOfModes says what is wrong with the page, if these tests exist.
func problemsOfModes(page string, exist map[string]bool) (problems []string) {
	all := readFailureModes(page)
	if len(all) != modes {
		problems = append(problems, fmt.Sprintf("there are %d modes, and not %d", len(all), modes))
	}
	for i, m := range all {
		name := m.number + ". " + m.title
		if m.number != fmt.Sprint(i+1) {
			problems = append(problems, fmt.Sprintf("%s: it is number %d", name, i+1))
		}
		if len(m.issues) == 0 {
			problems = append(problems, name+": no issue")
		}
		if len(m.tests) == 0 {
			problems = append(problems, name+": no test")
		}
		for _, test := range m.tests {
			if !exist[test] {
				problems = append(problems, name+": there is no test "+test)
			}
		}
	}
	return problems
}

// testsOfTree lists the tests of all packages, as "package TestName".
func testsOfTree(t *testing.T) map[string]bool {
	t.Helper()
	exist := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				exist[filepath.ToSlash(filepath.Dir(path))+" "+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return exist
}

func TestEveryFailureModeHasTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problemsOfModes(string(page), testsOfTree(t)) {
		t.Error(p)
	}
}

// The check of the page can fail.
func TestAPageOfFailureModesThatIsWrongIsRefused(t *testing.T) {
	const good = "[x #1](https://github.com/x/x/issues/1)\n\n- `pod` `TestA`: so\n"
	page := func(change int, with string) string {
		var b strings.Builder
		for i := range modes {
			text := fmt.Sprintf("## %d. Mode\n\n%s", i+1, good)
			if i == change {
				text = with
			}
			b.WriteString(text)
		}
		return b.String()
	}
	exist := map[string]bool{"pod TestA": true}
	for _, c := range []struct{ page, problem string }{
		{page(-1, ""), ""},
		{page(4, ""), "there are 19 modes, and not 20"},
		{page(4, "## 7. Mode\n\n"+good), "7. Mode: it is number 5"},
		{page(4, "## 5. Mode\n\n- `pod` `TestA`\n"), "5. Mode: no issue"},
		{page(4, "## 5. Mode\n\n[x #1](https://github.com/x/x/issues/1)\n"), "5. Mode: no test"},
		{page(4, "## 5. Mode\n\n"+good+"- `pod` `TestB`\n"), "5. Mode: there is no test pod TestB"},
		{page(4, "## 5. Mode\n\n"+good+"- `shim` `TestA`\n"), "5. Mode: there is no test shim TestA"},
		{page(4, "## 5. Mode\n\n"+good+"- TestA\n"), "5. Mode: there is no test - TestA"},
	} {
		if got := problemsOfModes(c.page, exist); !agrees(got, c.problem) {
			t.Errorf("problems %q, want %q", got, c.problem)
		}
	}
}
