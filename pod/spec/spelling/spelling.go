// Package spelling finds the word that a misspelt one was meant to be.
package spelling

import (
	"slices"
	"strings"
)

// Nearest returns the word of a list, which is not empty, with the smallest distance to a
// misspelt one.
func Nearest(word string, list []string) string {
	return slices.MinFunc(list, func(a, b string) int { return Distance(word, a) - Distance(word, b) })
}

// Likely returns the word of a list that a misspelt word was probably meant to be, or an
// empty string. That is a word that differs from the misspelt one only in case, or the
// nearest word if it differs in at most two letters and in fewer than half of the letters.
func Likely(word string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	if i := slices.IndexFunc(list, func(w string) bool { return strings.EqualFold(w, word) }); i >= 0 {
		return list[i]
	}
	n := Nearest(word, list)
	if d := Distance(word, n); d <= 2 && 2*d < len(word) {
		return n
	}
	return ""
}

// Distance returns Levenshtein's distance in bytes.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
