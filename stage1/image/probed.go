package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	probedDir      = "probed"
	maxProbedFiles = 64          // that an answer may name
	probeAgain     = time.Minute // how soon to probe again after a failure
)

// MaxAnswer is the largest size of an answer of features/probe, in bytes.
const MaxAnswer = maxManifest

// probed is the record of an answer of features/probe, or of its failure.
type probed struct {
	Version int             `json:"version"` // 1
	BootID  string          `json:"bootID"`
	Time    time.Time       `json:"time"`
	Files   []fileState     `json:"files,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"` // none if the probe has failed
}

// fileState identifies the contents of a file on which an answer depends. For a missing
// file only the path is set.
type fileState struct {
	Path   string `json:"path"`
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Sec    int64  `json:"sec,omitempty"` // of its last change, with Nsec
	Nsec   int64  `json:"nsec,omitempty"`
}

func stateOf(path string) fileState {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileState{Path: path}
	}
	return fileState{path, uint64(st.Dev), st.Ino, st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec)}
}

// isCurrent reports whether the record was made in this boot and its files have not changed
// since.
func (p *probed) isCurrent(boot string) bool {
	if p.Version != 1 || p.BootID != boot {
		return false
	}
	if p.Answer == nil {
		return time.Since(p.Time) < probeAgain
	}
	return !slices.ContainsFunc(p.Files, func(f fileState) bool { return stateOf(f.Path) != f })
}

// Probed returns the image with the features that its entrypoint features/probe reports,
// which replace those of its features document. ask executes the entrypoint in a directory.
// Probed records the answer, and calls ask again only after a boot, or if a file that the
// answer names has changed. If ask fails, Probed returns the image unchanged, and the error.
func (s *Store) Probed(ctx context.Context, i *Image, ask func(dir string) ([]byte, error)) (_ *Image, err error) {
	if i.RktABI() || !i.Has(abi.FeaturesProbe) {
		return i, nil
	}
	defer prefix(&err, "features of stage1 image %s", i.digest)
	unlock, err := s.lockProbes(ctx)
	if err != nil {
		return i, err
	}
	defer unlock()
	boot, err := proc.BootID()
	if err != nil {
		return i, err
	}
	var last probed
	record := filepath.Join(s.dir, probedDir, i.digest+".json")
	if readRecord(record, &last) == nil && last.isCurrent(boot) {
		if last.Answer == nil {
			return i, nil
		}
		if with, _, err := i.with(last.Answer); err == nil {
			return with, nil
		}
	}
	now := probed{Version: 1, BootID: boot, Time: time.Now()}
	with, files, err := s.probe(i, ask, &now)
	for _, path := range files {
		now.Files = append(now.Files, stateOf(path))
	}
	return with, errors.Join(err, replace(record, now))
}

// probe calls ask in a temporary directory.
func (s *Store) probe(i *Image, ask func(dir string) ([]byte, error), p *probed) (*Image, []string, error) {
	dir, err := os.MkdirTemp(filepath.Join(s.dir, probedDir), tmpPrefix)
	if err != nil {
		return i, nil, err
	}
	defer os.RemoveAll(dir)
	text, err := ask(dir)
	if err != nil {
		return i, nil, err
	}
	with, files, err := i.with(text)
	if err != nil {
		return i, nil, fmt.Errorf("the answer of %s: %w", abi.FeaturesProbe, err)
	}
	p.Answer = text
	return with, files, nil
}

// with returns the image with the features of an answer, and the files on which the answer
// depends.
func (i *Image) with(text []byte) (*Image, []string, error) {
	f, err := parseFeatures(text)
	switch {
	case err != nil:
		return nil, nil, err
	case len(f.Fields) == 0 || len(f.Files) == 0 || len(f.Files) > maxProbedFiles:
		return nil, nil, invalid("it has %d fields and %d files, and needs some of both, and at most %d files", len(f.Fields), len(f.Files), maxProbedFiles)
	case slices.ContainsFunc(f.Files, func(p string) bool { return !filepath.IsAbs(p) }):
		return nil, nil, invalid("a file is not an absolute path")
	}
	with := *i
	with.features, with.isProbed = f, true
	return &with, f.Files, nil
}

// lockProbes prevents other processes from probing at the same time.
func (s *Store) lockProbes(ctx context.Context) (unlock func(), err error) {
	dir := filepath.Join(s.dir, probedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := proc.FlockUntil(ctx, f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
