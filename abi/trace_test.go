package abi

import (
	"strings"
	"testing"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestATraceparentHasATraceASpanAndFlags(t *testing.T) {
	p, ok := ParseTraceparent(example)
	if !ok || p.Trace() != "4bf92f3577b34da6a3ce929d0e0e4736" || p.Span() != "00f067aa0ba902b7" || !p.Sampled() {
		t.Fatalf("%q, %t", p, ok)
	}
	child := p.With(0xab)
	if child != "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000ab-01" {
		t.Errorf("%q", child)
	}
	if again, ok := ParseTraceparent(string(child)); !ok || again != child {
		t.Errorf("%q, %t", again, ok)
	}
	for flags, want := range map[string]bool{"00": false, "01": true, "02": false, "03": true, "fe": false, "ff": true} {
		p, ok := ParseTraceparent(example[:53] + flags)
		if !ok || p.Sampled() != want {
			t.Errorf("flags %s: %q, %t, sampled %t", flags, p, ok, p.Sampled())
		}
	}
}

func TestOnlyVersion00OfATraceparentIsRead(t *testing.T) {
	for _, text := range []string{
		"", "00", example[1:], example + "0", example + "-00", " " + example[1:], example[:54] + " ", example[:54] + "\n",
		"01" + example[2:], "ff" + example[2:], "0x" + example[2:],
		strings.ToUpper(example), strings.Replace(example, "4bf", "4Bf", 1), strings.Replace(example, "4bf", "4gf", 1),
		strings.Replace(example, "-", "_", 1), example[:35] + "0" + example[36:], example[:52] + "0" + example[53:],
		"00-" + strings.Repeat("0", 32) + example[35:], example[:36] + strings.Repeat("0", 16) + example[52:],
		example[:53] + "0g", example[:53] + "0A", strings.Repeat("0", 1<<20),
	} {
		if p, ok := ParseTraceparent(text); ok {
			t.Errorf("%.80q was read as %q", text, p)
		}
	}
	for text, want := range map[string]bool{"00f067aa0ba902b7": true, "0000000000000000": false, "00f067aa0ba902b": false, "00f067aa0ba902bG": false, "": false} {
		if IsSpan(text) != want {
			t.Errorf("span %q: %t", text, !want)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add(example)
	f.Add("00-00000000000000000000000000000000-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := ParseTraceparent(text)
		if !ok {
			return
		}
		if again := "00-" + p.Trace() + "-" + p.Span() + "-" + text[53:]; again != text || !IsSpan(p.Span()) {
			t.Errorf("%q became %q", text, again)
		}
	})
}
