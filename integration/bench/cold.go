package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// measureCold measures ctr when the programs of the runtime have to be read from disk. Pages that
// a process of another user of the machine has mapped stay in memory, as those of Debian's runc
// may be.
func measureCold(ctx context.Context, b *bench) error {
	n := max(1, b.samples/5)
	return b.alternate(ctx, "ctr run --rm, cold", n, func(ctx context.Context, s subject, record recorder) error {
		programs, err := b.programs(s)
		if err != nil {
			return err
		}
		for _, p := range programs {
			if err := evict(p); err != nil {
				return err
			}
		}
		return b.measureCtr(ctx, s, opColdRun, opColdRunCPU, record)
	})
}

// programs lists the files of a runtime.
func (r *rig) programs(s subject) ([]string, error) {
	if s.runtime == runcShim {
		binary := s.binary
		if binary == "" {
			binary = "runc"
		}
		var err error
		if binary == "runc-current" {
			binary = filepath.Join(r.shims(), binary)
		} else if binary, err = exec.LookPath(binary); err != nil {
			return nil, err
		}
		return []string{filepath.Join(r.runcShims, s.shim()), binary}, nil
	}
	var files []string
	err := filepath.WalkDir(r.shims(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// evict drops the pages of a file that no process has mapped.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	// Dirty pages, as those of a copy that was just made, stay unless they are written first.
	return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
