package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// If a test is renamed, the guest's suites must not lose it unnoticed.
func TestEveryWordOfAPatternSelectsATest(t *testing.T) {
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
	for _, s := range append(allSuites(), foreignSuites()...) {
		var names []string
		files, _ := filepath.Glob(filepath.Join("..", s.dir(), "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
		for _, pattern := range []string{s.run, s.short} {
			tests := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(pattern, "") // alternatives among sub-tests
			for word := range strings.SplitSeq(tests, "|") {
				word, _, _ = strings.Cut(word, "/") // sub-tests: columns, features
				if !slices.ContainsFunc(names, regexp.MustCompile(word).MatchString) {
					t.Errorf("%s: no test has %q in its name", s.name, word)
				}
			}
		}
	}
}
