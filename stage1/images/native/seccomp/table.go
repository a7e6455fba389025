package seccomp

import (
	"strconv"
	"strings"
)

//go:generate go run ./internal/gentables

// maxColumns is how many architectures a table may have.
const maxColumns = 3

// absent is the number of a call that an architecture does not have.
const absent = -1

// lookup returns the numbers of a system call, in the order of the machine's
// architectures. If the name is unknown, all of them are absent.
//
// The table is a string in the read-only part of the binary. So nothing is
// built when the program starts, and the kernel reads only those pages of the
// table from disk that a search touches.
func (m machine) lookup(name string) [maxColumns]int {
	lo, hi := 0, len(m.table) // each is at the beginning of a line, or at the end of the table
	for lo < hi {
		start := lo + strings.LastIndexByte(m.table[lo:(lo+hi)/2], '\n') + 1
		end := start + strings.IndexByte(m.table[start:], '\n')
		key, columns, _ := strings.Cut(m.table[start:end], " ")
		switch strings.Compare(name, key) {
		case -1:
			hi = start
		case 1:
			lo = end + 1
		default:
			return parseColumns(columns)
		}
	}
	return [maxColumns]int{absent, absent, absent}
}

// parseColumns reads the numbers of a line.
func parseColumns(columns string) (numbers [maxColumns]int) {
	for i := range numbers {
		var field string
		field, columns, _ = strings.Cut(columns, " ")
		n, err := strconv.Atoi(field)
		if err != nil {
			n = absent
		}
		numbers[i] = n
	}
	return numbers
}
