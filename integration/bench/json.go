package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// report is the file that -json writes.
type report struct {
	Version    int               `json:"version"`
	Machine    *machine          `json:"machine"`
	Runtimes   map[string]string `json:"runtimes"` // by name in the table
	Operations []reportOperation `json:"operations"`
}

// reportOperation has the samples of each runtime in the order in which they were taken. The
// samples of all runtimes at one index were taken one after the other.
type reportOperation struct {
	Name    string               `json:"name"`
	Unit    string               `json:"unit"`
	Samples map[string][]float64 `json:"samples"`
}

// readSamples returns the samples of native, by the names of the operations, in a file of
// writeJSON. Without a path it returns none.
func readSamples(path string) (map[string][]float64, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var in report
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	samples := map[string][]float64{}
	for _, op := range in.Operations {
		samples[op.Name] = op.Samples["native"]
	}
	return samples, nil
}

func writeJSON(path string, m *machine, subjects []subject, r results) error {
	out := report{Version: 1, Machine: m, Runtimes: map[string]string{}}
	for _, s := range subjects {
		out.Runtimes[s.name] = s.runtime
	}
	for _, op := range r.operations() {
		d := op.describe()
		out.Operations = append(out.Operations, reportOperation{d.name, d.unit, r[op]})
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
