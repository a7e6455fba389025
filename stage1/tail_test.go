package stage1

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// However a stage1 writes its error, the last of it is kept, fit for a client and the
// journal.
func FuzzTheEndOfAnErrorIsKept(f *testing.F) {
	f.Add([]byte("no such file or directory\n"), 7)
	f.Add(bytes.Repeat([]byte("0123456789"), 1000), 512)
	f.Add([]byte("\x1b]0;\xff\xfe\x00"), 1)
	f.Fuzz(func(t *testing.T, text []byte, chunk int) {
		chunk = 1 + chunk&0x3ff
		tail := &tail{}
		for rest := text; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
			tail.keep(rest[:min(chunk, len(rest))])
		}
		if want := text[max(0, len(text)-abi.MaxErrorText):]; !bytes.Equal(tail.kept, want) {
			t.Fatalf("of %d bytes it kept %q", len(text), tail.kept)
		}
		got := clean(tail.kept)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\x07\r") || got != strings.TrimSpace(got) {
			t.Errorf("%q became %q", tail.kept, got)
		}
		last := lastOf(got, journalText)
		if !utf8.ValidString(last) || len(last) > journalText+len("…") || !strings.HasSuffix(got, strings.TrimPrefix(last, "…")) {
			t.Errorf("the journal has %q of %q", last, got)
		}
	})
}
