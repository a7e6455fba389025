package abi

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a text safe for terminals and logs. Parts of such a text come from a
// stage1, a hook or an image. Printable replaces control characters, and characters that
// change the direction of writing, by their Go escapes, such as \x1b. Newlines and tabs
// stay. Bytes that are not UTF-8 become U+FFFD.
func Printable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\r\n", "\n")
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !acts(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// acts reports whether a terminal may do something else with a character than show it.
func acts(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }
