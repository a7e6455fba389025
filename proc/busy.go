package proc

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Busy returns words for the error of a limit that has passed, " on a busy host (load average 98.20, 2 processors)", if the
// host has far more to do than it can, and "" otherwise.
func Busy() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return busy(string(text), runtime.NumCPU())
}

// busyAt is how many processes for each processor make a host busy.
const busyAt = 4

func busy(loadavg string, processors int) string {
	word, _, _ := strings.Cut(loadavg, " ")
	load, err := strconv.ParseFloat(word, 64)
	if err != nil || load < busyAt*float64(processors) {
		return ""
	}
	return fmt.Sprintf(" on a busy host (load average %s, %d processors)", word, processors)
}
