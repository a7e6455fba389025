package config

// nearest returns the word of a list, which is not empty, with the smallest distance to a
// misspelt one.
func nearest(word string, list []string) string {
	best := list[0]
	for _, w := range list[1:] {
		if editDistance(word, w) < editDistance(word, best) {
			best = w
		}
	}
	return best
}

// editDistance returns Levenshtein's distance in bytes.
func editDistance(a, b string) int {
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
