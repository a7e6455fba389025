package abi

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns a text that a stage1, a hook or an image has a part in, fit for a
// terminal and a log: characters that would act on either, such as an escape sequence, are
// replaced by what Go calls them, as in \x1b, and so are those that turn the direction of
// writing. Lines and tabs stay; what is not UTF-8 becomes U+FFFD.
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
