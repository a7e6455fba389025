package stage1

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever bytes a stage1 writes as its error, clients and the journal get a
// text.
func FuzzAnErrorIsFitForAClient(f *testing.F) {
	f.Add([]byte("no such file or directory\n"))
	f.Add(bytes.Repeat([]byte("0123456789"), 400))
	f.Add([]byte("\x1b]0;\xff\xfe\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := clean(text)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\x07\r") || got != strings.TrimSpace(got) {
			t.Errorf("%q became %q", text, got)
		}
		last := lastOf(got, journalText)
		if !utf8.ValidString(last) || len(last) > journalText+len("…") || !strings.HasSuffix(got, strings.TrimPrefix(last, "…")) {
			t.Errorf("the journal has %q of %q", last, got)
		}
	})
}
