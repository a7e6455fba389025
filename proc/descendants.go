package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Descendants lists the processes that a process and its descendants have started, as far as their
// parents live. The kernel lists the children of each thread.
func Descendants(pid int) ([]int, error) {
	var all []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", queue[0])) // the pattern is valid
		if len(lists) == 0 && queue[0] == pid {
			return nil, fmt.Errorf("process %d has ended, or this kernel lists no children (CONFIG_PROC_CHILDREN)", pid)
		}
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for word := range strings.FieldsSeq(string(text)) {
				child, err := strconv.Atoi(word)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", list, err)
				}
				all, queue = append(all, child), append(queue, child)
			}
		}
	}
	return all, nil
}
