package abi

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestATextForATerminalDoesNothingToIt(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"plain, naïve, 日本　語 🙂":    "plain, naïve, 日本　語 🙂",
		"two\nlines\tand a tab":   "two\nlines\tand a tab",
		"of Windows\r\nends":      "of Windows\nends",
		"over\rwritten":           `over\rwritten`,
		"\x1b]0;title\a":          `\x1b]0;title\a`,
		"\x1b[2Jcleared":          `\x1b[2Jcleared`,
		"NUL\x00 and DEL\x7f":     `NUL\x00 and DEL\x7f`,
		"C1 \u009b31m":            `C1 \u009b31m`,
		"bare \x9b31m":            "bare \uFFFD31m",
		"txt.\u202eexe":           `txt.\u202eexe`,
		"\u2066isolated\u2069":    `\u2066isolated\u2069`,
		"a line\u2028separator":   `a line\u2028separator`,
		`a backslash \x1b stays`:  `a backslash \x1b stays`,
		"zero\u200bwidth\ufeff":   `zero\u200bwidth\ufeff`,
		"\U000e0041 is a tag":     `\U000e0041 is a tag`,
		"half a rune \xe6\x97":    "half a rune \uFFFD",
		"no-break\u00a0space too": "no-break\u00a0space too",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("plain\n\ttext")
	f.Add("\x1b]0;title\a\u202e\u009b\x9b\r\n\r")
	f.Fuzz(func(t *testing.T, text string) {
		got := Printable(text)
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Errorf("%q has %U", got, r)
			}
		}
		if again := Printable(got); again != got {
			t.Errorf("%q, once more: %q", got, again)
		}
		plain := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		if plain && got != text {
			t.Errorf("%q was changed to %q", text, got)
		}
	})
}
