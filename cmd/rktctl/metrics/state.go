package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock takes the right to write the file with the counters.
func lock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process keeps the counters in %s: %w", path, err), f.Close())
	}
	return f, nil
}

// state is the file with the counters.
type state struct {
	Version  int                  `json:"version"`
	Counters map[string]float64   `json:"counters"` // by their lines in the text
	Values   map[string][]string  `json:"values"`   // of bounded labels
	Pods     map[string]*position `json:"pods"`
	Failures map[string]int       `json:"failures"`        // how many of each record were counted
	Spans    []span               `json:"spans,omitempty"` // that were not sent yet
}

// readState reads the file. Without it, counting begins, and also if it is no JSON: it is not flushed, so a power loss
// may damage it.
func readState(path string) (*state, error) {
	s := &state{Version: 1, Counters: map[string]float64{}, Values: map[string][]string{}, Pods: map[string]*position{}, Failures: map[string]int{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !json.Valid(text) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, s); err != nil || s.Version != 1 || s.Counters == nil || s.Values == nil || s.Pods == nil || s.Failures == nil {
		return nil, fmt.Errorf("%s is not a file of counters, or of another release: remove it to begin at zero: %w", path, errors.Join(err, errors.ErrUnsupported))
	}
	return s, nil
}

// write replaces the file.
func (s *state) write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return Replace(path, text, 0o600)
}

// Replace writes a file, so that a reader sees either the old or the new content.
func Replace(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
