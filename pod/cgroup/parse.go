package cgroup

import (
	"os"
	"strconv"
	"strings"
)

// keyed reads lines of a name and a number. Lines of another form are left out:
// a kernel may add some.
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

// readKeyed is keyed of a file. A file that is not there has no values.
func readKeyed(file string) (map[string]uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil && !isGone(err) {
		return nil, err
	}
	return keyed(b), nil
}
