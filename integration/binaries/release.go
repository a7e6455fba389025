package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoHistory is returned if the repository does not contain a commit, because it is a shallow
// clone or not a repository.
var ErrNoHistory = errors.New("the repository's history is not there")

// Earlier returns a directory with the files that `make build` makes of this repository at an
// earlier commit. The first call on a machine takes a minute.
func Earlier(ctx context.Context, log io.Writer, commit string) (string, error) {
	root, err := nested(ctx, "..")
	if err != nil {
		return "", err
	}
	// The owner of a checkout need not be the user who runs its tests.
	git := []string{"-c", "safe.directory=*", "-C", root}
	if err := exec.CommandContext(ctx, "git", append(git, "cat-file", "-e", commit+"^{commit}")...).Run(); err != nil {
		return "", fmt.Errorf("commit %s: %w", commit, ErrNoHistory)
	}
	return Cached(cacheName("earlier", commit), func(dir string) error {
		done := Progress(log, "building commit "+commit+" (once, a minute)")
		defer done()
		tree, err := os.MkdirTemp("", "rkt-earlier-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tree)
		archive, err := exec.CommandContext(ctx, "git", append(git, "archive", commit)...).Output()
		if err != nil {
			return fmt.Errorf("git archive %s: %w", commit, err)
		}
		unpack := exec.CommandContext(ctx, "tar", "-x", "-C", tree)
		unpack.Stdin = bytes.NewReader(archive)
		if out, err := unpack.CombinedOutput(); err != nil {
			return fmt.Errorf("unpack commit %s: %w: %s", commit, err, out)
		}
		if out, err := exec.CommandContext(ctx, "make", "-C", tree, "build", "BIN="+filepath.Clean(dir), "VERSION="+commit, "REVISION="+commit).CombinedOutput(); err != nil {
			return fmt.Errorf("make build of commit %s: %w: %s", commit, err, out)
		}
		return nil
	})
}
