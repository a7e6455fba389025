// Command rktcompat writes the results of the integration suite for rkt's interface
// versions and images into a document, feature by feature.
//
//	go test -json -run "$(go run ./rktcompat -tests)" . | go run ./rktcompat -document ../docs/results/stage1-compat.md
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
)

// block is the name of the block that is replaced in the document.
const block = "versions"

func main() {
	log.SetFlags(0)
	log.SetPrefix("rktcompat: ")
	file := flag.String("document", "../docs/results/stage1-compat.md", "`file` to write into")
	tests := flag.Bool("tests", false, "print the pattern of the tests, for -run, and end")
	leftOut := flag.Bool("left-out", false, "print the pattern of those that make test leaves out, for -skip, and end")
	flag.Parse()
	switch {
	case *tests:
		fmt.Println(pattern(all()))
		return
	case *leftOut:
		fmt.Println(pattern(slices.DeleteFunc(all(), func(test string) bool { return slices.Contains(kept, test) })))
		return
	}
	results, err := read(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := table(results)
	if err != nil {
		log.Fatal(err)
	}
	if err := document.Replace(*file, block, document.Table(rows)); err != nil {
		log.Fatal(err)
	}
}

// all returns the names of all tests, of features and others.
func all() []string {
	names := slices.Clone(others)
	for _, f := range features {
		for k := range f.tests {
			if test, _ := f.of(kind(k)); test != "" {
				names = append(names, test)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pattern returns a regular expression that matches exactly these tests.
func pattern(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// read returns how each test has ended: pass, fail or skip.
func read(r io.Reader) (map[string]string, error) {
	results := map[string]string{}
	d := json.NewDecoder(r)
	for {
		var e struct{ Action, Test string }
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return nil, fmt.Errorf("this is not the output of go test -json: %w", err)
		}
		switch e.Action {
		case "pass", "fail", "skip":
			results[e.Test] = e.Action
		}
	}
}

// table renders the results. It returns an error if the test of a feature was not run, because
// then the test has another name.
func table(results map[string]string) ([][]string, error) {
	head := []string{"feature"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	rows := [][]string{head}
	for _, f := range features {
		row := []string{f.name}
		for _, c := range columns {
			word, err := f.cell(c, results)
			if err != nil {
				return nil, err
			}
			row = append(row, word)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// cell returns the cell of a feature in a column.
func (f feature) cell(c column, results map[string]string) (string, error) {
	test, below := f.of(c.kind)
	if test == "" {
		return f.why[c.kind], nil
	}
	switch results[test+c.path+below] {
	case "pass":
		if f.refused[c.kind] {
			return "refused", nil
		}
		return cmp.Or(f.but[c.name], "yes"), nil
	case "fail":
		return "**no**", nil
	case "skip":
		return "skipped", nil
	}
	for whole := test + c.path; whole != ""; whole = whole[:max(0, strings.LastIndex(whole, "/"))] {
		switch results[whole] { // the test ended before this case
		case "fail":
			return "**no**", nil
		case "skip":
			return "skipped", nil
		}
	}
	return "", fmt.Errorf("%s: %s was not run", f.name, test+c.path+below)
}
