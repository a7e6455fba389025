package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// delegatedFiles lists the files of a cgroup that are given to the user to whom the cgroup
// is delegated.
const delegatedFiles = "/sys/kernel/cgroup/delegate"

// Delegate gives the cgroup to a user of the host. The user may then make cgroups below it
// and move its processes among them, but cannot change its limits. On version 1 Delegate
// does nothing, because a version 1 cgroup cannot be delegated safely.
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
		// The files of controllers that the cgroup does not have do not exist.
		if e := os.Lchown(filepath.Join(dir, name), uid, sameGroup); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("delegate cgroup %s to user %d: %w", g.Path(), uid, err)
	}
	return nil
}
