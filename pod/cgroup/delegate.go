package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// delegatedFiles lists the files of a cgroup that belong to whom it is delegated.
const delegatedFiles = "/sys/kernel/cgroup/delegate"

// Delegate gives the cgroup to a user of the host, who may then make others below it
// and distribute among these the processes that are in it. Its limits stay out of
// reach: they are the parent's to set. Nothing happens on version 1, which cannot
// give a cgroup away safely.
func (g *Group) Delegate(uid int) error {
	if g.record.Version != 2 {
		return nil
	}
	list, err := os.ReadFile(delegatedFiles)
	if err != nil {
		return fmt.Errorf("cgroup %s: which files to delegate: %w", g.Path(), err)
	}
	const sameGroup = -1
	dir := g.record.Dirs[""]
	err = os.Lchown(dir, uid, sameGroup)
	for name := range strings.FieldsSeq(string(list)) {
		// A file of a controller that the cgroup does not have is not there.
		if e := os.Lchown(filepath.Join(dir, name), uid, sameGroup); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("delegate cgroup %s to user %d: %w", g.Path(), uid, err)
	}
	return nil
}
