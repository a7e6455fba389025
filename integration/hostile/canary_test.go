package hostile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// canary is a directory of the host that no other process has a reason to touch.
type canary struct {
	dir    string
	secret string // the contents of the file secret
	was    map[string]string
}

// Files of a canary.
const (
	secretFile = "secret" // 0600
	stickyDir  = "sticky" // 1777
	hostDir    = "host"   // 0755: targets of an attacker's links
)

func newCanary(dir string) (*canary, error) {
	c := &canary{dir: dir, secret: token()}
	return c, c.plant()
}

// plant makes the canary again from scratch.
func (c *canary) plant() error {
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	for name, mode := range map[string]os.FileMode{"": 0o755, stickyDir: 0o777 | os.ModeSticky, hostDir: 0o755} {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	// Attacks would have removed ptmx and f, or changed their modes.
	for _, name := range []string{secretFile, hostDir + "/f", hostDir + "/ptmx"} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(c.secret+"\n"), 0o600); err != nil {
			return err
		}
	}
	var err error
	c.was, err = c.look()
	return err
}

func (c *canary) path(name string) string { return filepath.Join(c.dir, name) }

// look returns a description of every file.
func (c *canary) look() (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if string(b) != c.secret+"\n" {
				text += ", with something else in it"
			}
		case info.Mode()&os.ModeSymlink != 0:
			link, _ := os.Readlink(path)
			text += " to " + link
		}
		name, _ := filepath.Rel(c.dir, path)
		files[name] = text
		return nil
	})
	return files, err
}

// changes describes the changes to the canary, and plants it again.
func (c *canary) changes() (changes []string, err error) {
	is, err := c.look()
	if err != nil {
		return nil, err
	}
	for name, text := range is {
		if was, ok := c.was[name]; !ok {
			changes = append(changes, fmt.Sprintf("a file of the host was created: %s, %s", name, text))
		} else if was != text {
			changes = append(changes, fmt.Sprintf("a file of the host was changed: %s, %s, was %s", name, text, was))
		}
	}
	for name := range c.was {
		if _, ok := is[name]; !ok {
			changes = append(changes, "a file of the host was removed: "+name)
		}
	}
	if len(changes) > 0 {
		err = c.plant()
	}
	slices.Sort(changes)
	return changes, err
}
