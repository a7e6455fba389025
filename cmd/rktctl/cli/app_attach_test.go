package cli

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// Only the two keys in sequence end the input, wherever reads divide it.
func TestTwoKeysLeaveAnApp(t *testing.T) {
	for in, want := range map[string]string{
		"abc":                "abc",
		"a\x10b":             "a\x10b",
		"a\x10\x10b":         "a\x10\x10b",
		"a\x11b\x10":         "a\x11b\x10",
		"ab\x10\x11cd":       "ab!",
		"\x10\x10\x11x":      "\x10!",
		"\x10\x11":           "!",
		"a\x10\x10\x10\x11b": "a\x10\x10!",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			left := ""
			got, err := io.ReadAll(&leavingInput{from: r, leave: func() { left = "!" }})
			if err != nil || string(got)+left != want {
				t.Errorf("%q, %s: %q, %v", in, name, string(got)+left, err)
			}
		}
	}
}
