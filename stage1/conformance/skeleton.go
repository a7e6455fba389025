package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/docs"
)

// SkeletonFile is a file of an example image, from a guide.
type SkeletonFile struct {
	Path string // in the image
	Text string
}

// Executable reports whether the file is a program.
func (f SkeletonFile) Executable() bool { return strings.HasPrefix(f.Text, "#!") }

// Example names an image whose files are in a guide.
type Example string

// The examples.
const (
	Runc       Example = "runc"       // of docs/stage1-authors.md
	Bubblewrap Example = "bubblewrap" // of docs/stage1-bubblewrap.md
)

// Examples returns all examples.
func Examples() []Example { return []Example{Runc, Bubblewrap} }

// Skeleton returns the files of an example in the order of its document. In the document a
// file is a code block whose fence has a language and a path:
//
//	```sh rootfs/run
func Skeleton(e Example) []SkeletonFile {
	switch e {
	case Runc:
		return parseSkeleton(docs.Stage1Authors())
	case Bubblewrap:
		return parseSkeleton(docs.Stage1Bubblewrap())
	}
	return nil
}

const fence = "```"

// parseSkeleton returns the files in a document.
func parseSkeleton(document string) []SkeletonFile {
	var files []SkeletonFile
	inside, isFile := false, false
	for line := range strings.Lines(document) {
		info, isFence := strings.CutPrefix(strings.TrimSuffix(line, "\n"), fence)
		switch {
		case isFence && inside:
			inside = false
		case isFence:
			words := strings.Fields(info)
			inside, isFile = true, len(words) == 2
			if isFile {
				files = append(files, SkeletonFile{Path: words[1]})
			}
		case inside && isFile:
			files[len(files)-1].Text += line
		}
	}
	return files
}

// WriteSkeleton makes the image of an example in a directory. The directory must be empty
// or not exist.
func WriteSkeleton(dir string, e Example) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return fmt.Errorf("%s is not empty: %w", dir, fs.ErrExist)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, d := range []string{"rootfs/opt/stage2", "rootfs/rkt"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range Skeleton(e) {
		mode := os.FileMode(0o644)
		if f.Executable() {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, f.Path), []byte(f.Text), mode); err != nil {
			return err
		}
	}
	return nil
}
