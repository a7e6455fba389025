package cgroup

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// keyed parses lines of a name and a number. It skips lines of another form, which a later
// kernel may add.
func keyed(text []byte) map[string]uint64 {
	values := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			values[name] = v
		}
	}
	return values
}

// readKeyed is keyed for a file. A missing file has no values.
func readKeyed(file string) (map[string]uint64, error) {
	b, err := proc.ReadOnce(file)
	if err != nil && !isGone(err) {
		return nil, err
	}
	return keyed(b), nil
}

// readNumber reads a file that holds one number, or "max" for no limit. A missing file
// counts as 0.
func readNumber(file string) (uint64, error) {
	b, err := proc.ReadOnce(file)
	if isGone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", file, text)
	}
	return n, nil
}

// device parses MAJOR:MINOR.
func device(text string) (major, minor uint64, ok bool) {
	before, after, ok := strings.Cut(text, ":")
	if !ok {
		return 0, 0, false
	}
	major, err := strconv.ParseUint(before, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.ParseUint(after, 10, 32)
	return major, minor, err == nil
}

// pairs parses words of the form NAME=NUMBER, where NUMBER may be "max". It skips other
// words.
func pairs(words []string) map[string]uint64 {
	values := map[string]uint64{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if value == "max" {
			values[name] = math.MaxUint64
		} else if v, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			values[name] = v
		}
	}
	return values
}
