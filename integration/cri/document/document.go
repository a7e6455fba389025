// Package document writes the results of tests into Markdown files that people write: each
// result into a block between two comments with its name.
package document

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Replace replaces a block of a file. The file must have its two comments:
//
//	<!-- begin NAME: … -->
//	<!-- end NAME -->
func Replace(file, name, content string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := replace(string(b), name, content)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func replace(text, name, content string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	begin := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "<!-- begin "+name+":") })
	end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "<!-- end "+name+" ") })
	if begin < 0 || end < begin {
		return "", errors.New("there is no block of the name " + name)
	}
	return strings.Join(lines[:begin+1], "") + "\n" + strings.TrimSpace(content) + "\n\n" + strings.Join(lines[end:], ""), nil
}

// Table renders a table whose first row is its head.
func Table(rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, c := range cells {
			escaped[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(escaped, " | "))
	}
	line(rows[0])
	line(slices.Repeat([]string{"---"}, len(rows[0])))
	for _, r := range rows[1:] {
		line(r)
	}
	return b.String()
}
