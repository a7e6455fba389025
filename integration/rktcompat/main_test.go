package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outcomes is the output of go test for all tests, with a result from ended for each case.
func outcomes(t *testing.T, ended func(test string) string) map[string]string {
	t.Helper()
	var b strings.Builder
	for _, f := range features {
		for _, c := range columns {
			if test, below := f.of(c.kind); test != "" {
				for _, name := range []string{test, test + c.path, test + c.path + below} {
					b.WriteString(`{"Action":"run","Test":"` + name + `"}` + "\n" + `{"Action":"` + ended(name) + `","Test":"` + name + `"}` + "\n")
				}
			}
		}
	}
	results, err := read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestACellSaysHowItsTestHasEnded(t *testing.T) {
	rows, err := table(outcomes(t, func(test string) string {
		switch {
		case strings.HasPrefix(test, "TestATerminal") && strings.Contains(test, "version_5"):
			return "fail"
		case strings.HasPrefix(test, "TestStreamsOfRktsNspawn"):
			return "skip"
		}
		return "pass"
	}))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1+len(features) {
		t.Fatalf("%d rows of %d features", len(rows), len(features))
	}
	got := map[string][]string{}
	for _, r := range rows[1:] {
		got[r[0]] = r[1:]
	}
	for name, want := range map[string]string{
		"a terminal, ResizePty":                 "yes yes yes yes **no** yes **no** yes yes yes yes yes",
		"the streams, and the end of the input": "yes yes yes yes yes yes yes without that end yes skipped skipped skipped",
		"several containers in a pod":           "refused refused refused refused refused refused yes yes refused yes yes yes",
		"Checkpoint":                            "refused refused refused refused refused refused refused refused refused refused refused refused",
	} {
		if s := strings.Join(got[name], " "); s != want {
			t.Errorf("%s: %s, want %s", name, s, want)
		}
	}
}

func TestEveryCellIsAskedOrSaysWhyNot(t *testing.T) {
	for _, f := range features {
		for k := range f.tests {
			if (f.tests[k] == "") != (f.why[k] != "") {
				t.Errorf("%s, kind %d: test %q, why not %q", f.name, k, f.tests[k], f.why[k])
			}
		}
	}
}

// A failed case has stopped the container, so the cases after it were not run.
func TestACaseBehindAFailureIsNoSuccess(t *testing.T) {
	results := outcomes(t, func(string) string { return "pass" })
	of := served[immutable] + columns[0].path
	results[of] = "fail"
	delete(results, of+"/Delete")
	rows, err := table(results)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if want := map[string]string{"Delete": "**no**", "Create": "yes"}[r[0]]; want != "" && r[1] != want {
			t.Errorf("%s: %s, want %s", r[0], r[1], want)
		}
	}
}

func TestATestThatIsNotThereAnyMoreIsAnError(t *testing.T) {
	results := outcomes(t, func(string) string { return "pass" })
	for test := range results {
		if strings.HasPrefix(test, nspawnMany) {
			delete(results, test)
		}
	}
	if _, err := table(results); err == nil || !strings.Contains(err.Error(), nspawnMany) {
		t.Errorf("%v, want an error about %s", err, nspawnMany)
	}
}

func TestWhatIsNotJSONIsAnError(t *testing.T) {
	if _, err := read(strings.NewReader("FAIL\n")); err == nil {
		t.Error("no error")
	}
}

// A test of these images whose name is missing here would be run by make test and not by make
// test-rkt.
func TestEveryTestOfTheseImagesIsNamed(t *testing.T) {
	files, err := filepath.Glob("../rkt*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the sources are not here (%v)", err)
	}
	var found []string
	for _, file := range files {
		if file == "../rktfly_test.go" || strings.HasPrefix(file, "../rktctl_") { // they test the bundled images
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			found = append(found, string(m[1]))
		}
	}
	slices.Sort(found)
	if names := all(); !slices.Equal(found, names) {
		t.Errorf("the tests are\n%s\nand the names\n%s", strings.Join(found, "\n"), strings.Join(names, "\n"))
	}
	for _, name := range kept {
		if !slices.Contains(found, name) {
			t.Errorf("there is no test %s", name)
		}
	}
}
