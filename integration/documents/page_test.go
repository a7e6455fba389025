package documents

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const example = "# A page\n" +
	"```console\n# id=$(date +%s) && \\\n> echo one\none\n$ echo two; echo 'no such' >&2\ntwo\nno such\n```\n" +
	"<!-- test: not run: it needs a cluster -->\n```sh\nkubectl get pods\n```\n" +
	"* in a list:\n\n  <!-- test: file $PWD/f.toml -->\n  ```toml\n  a = 1\n  ```\n" +
	"<!-- test: first\ntest -n \"$id\"\n-->\n```sh\n# a comment\ncat f.toml \\\n  f.toml\n```\n" +
	"```\nno session\n```\n"

func TestAPageIsExecutedInOneShell(t *testing.T) {
	page, err := Parse(example, "")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, s := range page.Steps {
		kinds = append(kinds, fmt.Sprint(s.Line, s.File != "", s.Compare))
	}
	if want := []string{"3 false true", "6 false true", "17 true false", "21 false false", "25 false false"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	if !slices.Equal(page.NotRun, []string{"it needs a cluster"}) {
		t.Errorf("%q", page.NotRun)
	}
	results, err := Run(t.Context(), page.Steps, t.TempDir(), t.TempDir(), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range page.Steps {
		if why := s.Check(results[i]); why != "" {
			t.Error(why)
		}
	}
	if got := results[4].Output; got != "a = 1\na = 1\n" {
		t.Errorf("the file is %q", got)
	}
}

func TestACommandThatIsNotTrueIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"```console\n$ echo 1\n2\n```":                       "line 2: echo 1: exit code 0, and it printed\n1\n",
		"```sh\ntrue\nfalse\n```":                            "line 3: false: exit code 1",
		"<!-- test: first\nfalse\n-->":                       "line 2: false: exit code 1",
		"```console\n$ exit 3\n$ echo 1\n```":                "the shell has ended in the command of line 2",
		"```console\n$ echo 1\n1\n$ kill -9 $$\n$ true\n```": "the shell has ended in the command of line 4",
		"<!-- test: file /proc/none -->\n```\nx\n```":        "exit code 1",
	} {
		page, err := Parse(text, "")
		if err != nil {
			t.Fatal(err)
		}
		results, err := Run(t.Context(), page.Steps, t.TempDir(), t.TempDir(), os.Environ())
		var found []string
		if err != nil {
			found = append(found, err.Error())
		}
		for i, r := range results {
			found = append(found, page.Steps[i].Check(r))
		}
		if all := strings.Join(found, "\n"); !strings.Contains(all, want) {
			t.Errorf("%q: found %q, want %q", text, all, want)
		}
	}
}

func TestAPageThatCannotBeReadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"```console\nno command\n```": "begins with a command",
		"```sh\ntrue":                 "has no end",
		"<!-- test: first\ntrue":      "has no end",
		"<!-- test: never -->":        "unknown directive",
		"<!-- test: not run: x -->":   "no block follows",
		"<!-- test: not run: x -->\n<!-- test: file y -->\n```\n": "no block follows",
	} {
		if _, err := Parse(text, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Parse("## One\n", "Two"); err == nil {
		t.Error("a section that is not there was found")
	}
	page, err := Parse("```sh\n1\n```\n## One\n```sh\n2\n```\n## Two\n```sh\n3\n```\n", "One")
	if err != nil || len(page.Steps) != 1 || page.Steps[0].Command != "2" || page.Steps[0].Line != 6 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestValuesMatchValuesOfTheirKind(t *testing.T) {
	for _, c := range []struct {
		want, got string
		match     bool
	}{
		{"pod 0b6a3c1e-5d0f-4a52-9f6e-1c1f4f1d2a77\n", "pod   5f2c1a34-91d0-4b5c-8a3e-0d5b2f6c7a81\n", true},
		{"A  B\n1  running\n", "A   B\n1   running\n", true},
		{"A  B\n1  running\n", "A   B\n1   exited\n", false},
		{"created 2026-11-23T09:13:05.118Z (4m ago)\n", "created 2027-01-02T00:00:00.1Z (12s ago)\n", true},
		{"process 4711\n", "process 65000\n", true},
		{"exit code 3\n", "exit code 4\n", false},
		{"exit code 137\n", "exit code 143\n", false},
		{"sha512-5d1a…\n", "sha512-de95b41ce23a77df\n", true},
		{"sha512-5d1a…\n", "sha512-de95b41ce23a77df and more\n", false},
		{"error: …\n", "error: of any kind\n", true},
		{"level=warning msg=\"DEPRECATION: x\"\n", "", true},
		{"hello\n", "hello\ntime=\"2026-11-23T15:59:42Z\" level=error msg=\"forward signal child exited\" error=\"ttrpc: closed\"\n", true},
		{"pod a18937bc\n", "pod 6932496d\n", true},
		{"pod a18937bc\n", "pod 69d2496d\n", true},
		{"pod a18937bc\n", "pod 300d\n", false},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"a\n…\nz\n", "a\nz\n", true},
		{"a\n…\n", "a\nb\n", true},
		{"a\n…\nz\n", "a\nb\n", false},
		{"a…z\n", "ab\nz\n", false},
		{"2.0 MiB\n", "11 MiB\n", true},
		{"a.b\n", "axb\n", false},
		{"", "anything\n", false},
	} {
		if Matches(c.want, c.got) != c.match {
			t.Errorf("%q and %q: want %v", c.want, c.got, c.match)
		}
	}
}
