package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// documentVariable names the environment variable with the file for the results.
const documentVariable = "RKT_TEST_DOCUMENT"

// result has the errors of a state's steps, by column and by the step's name.
type result struct {
	State  string
	Failed map[string]map[string]string
}

// results are those of all states.
type results struct {
	mu  sync.Mutex
	all []*result
}

// found has the results of this run.
var found results

func (r *results) add(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *results) write(file string) error {
	b, err := json.Marshal(r.all)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// writeDocument writes the results to the file that documentVariable names, if all states were tried.
func writeDocument(_ context.Context, e enclosure.Enclosure) error {
	to := os.Getenv(documentVariable)
	if to == "" {
		return nil
	}
	b, err := os.ReadFile(e.Path(resultsFile))
	if err != nil {
		return err
	}
	var all []*result
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if len(all) < len(states()) {
		return nil
	}
	return os.WriteFile(to, []byte(render(all)), 0o644)
}

const head = "# Odd hosts\n\n`make test-hosts` writes this file; integration/hosts has the states and the steps.\n\n" + `In each state one containerd of its own does the same steps with each stage1 and with runc: %s.
A cell is empty if all succeed. Otherwise it has the number of steps that fail, with the first error.

`

func render(all []*result) string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	columns := slices.Sorted(maps.Keys(all[0].Failed))
	rows := [][]string{append([]string{"state"}, columns...)}
	for _, s := range states() {
		i := slices.IndexFunc(all, func(r *result) bool { return r.State == s.name })
		row := []string{s.name}
		for _, c := range columns {
			row = append(row, cell(all[i].Failed[c]))
		}
		rows = append(rows, row)
	}
	return fmt.Sprintf(head, strings.Join(names, ", ")) + document.Table(rows)
}

func cell(failed map[string]string) string {
	for _, s := range steps() {
		if text, ok := failed[s.name]; ok {
			text = strings.TrimPrefix(numbers.ReplaceAllString(strings.Join(strings.Fields(text), " "), "N"), "failed to create shim task: ")
			return fmt.Sprintf("%d: %s: %s", len(failed), s.name, text)
		}
	}
	return ""
}
