package documents

import (
	"regexp"
	"strings"
)

// values are the parts of output that differ from run to run, the more specific kinds first.
var values = []struct {
	kind *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`sha(256|512)[-:][0-9a-f]+…?`), "DIGEST"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?Z?\b`), "TIME"},
	{regexp.MustCompile(`\b[0-9d]{7,}d\b`), "DIGEST"}, // not a number of days
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|ms|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?([KMG]i?B|[KMG]|B)\b`), "SIZE"},
	{regexp.MustCompile(`\b[0-9a-f]{8,}\b`), "DIGEST"}, // some of them have digits only
	{regexp.MustCompile(`\b(\d{4,}|\d+\.\d+)\b`), "NUMBER"},
}

var (
	spaces = regexp.MustCompile(`[ \t]+`)
	// noise is what clients write about themselves: warnings of what a machine should not use any
	// more, such as version 1 of cgroups; and nerdctl's complaint that the end of its own child came
	// when the container had ended, and could not be passed on.
	noise      = regexp.MustCompile(`(?m)^.*(level=warning msg="DEPRECATION: |level=error msg="forward signal child exited" ).*\n`)
	wholeLines = regexp.MustCompile(`(?m)^…\n`)
)

// normal replaces values by the names of their kinds.
func normal(text string) string {
	for _, v := range values {
		text = v.kind.ReplaceAllString(text, v.name)
	}
	lines := strings.Split(noise.ReplaceAllString(text, ""), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(spaces.ReplaceAllString(line, " "))
	}
	return strings.Join(lines, "\n")
}

// Matches reports whether the output of a command is that of the document.
func Matches(want, got string) bool {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for i, part := range wholeLines.Split(normal(want), -1) {
		if i > 0 {
			pattern.WriteString(`(?:.*\n)*?`)
		}
		for j, words := range strings.Split(part, "…") {
			if j > 0 {
				pattern.WriteString(`.*`)
			}
			pattern.WriteString(regexp.QuoteMeta(words))
		}
	}
	pattern.WriteString(`\z`)
	return regexp.MustCompile(pattern.String()).MatchString(normal(got))
}
