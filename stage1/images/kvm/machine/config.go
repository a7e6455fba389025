package machine

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

const mebibyte = 1 << 20

// check returns an error for a machine that cannot be.
func (c *Config) check() error {
	switch {
	case c.Children == nil || c.Channel == nil || c.Console == nil:
		return errors.New("it has no reaper, channel or console")
	case c.Saved != "" && c.Booted == nil:
		return errors.New("it is to be saved, and has no Booted")
	case c.Accel != KVM && c.Accel != TCG:
		return fmt.Errorf("there is no accelerator %q", c.Accel)
	}
	for _, path := range []string{c.Kernel, c.Modules, c.Init, c.Dir, cmp.Or(c.Saved, "/")} {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%q is no absolute path", path)
		}
	}
	if err := errors.Join(c.checkType(), c.checkSize()); err != nil {
		return err
	}
	for _, s := range c.Shares {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// maxTag is the length of the tag in virtiofs' configuration space.
const maxTag = 36

func (s *Share) check() error {
	switch {
	case s.Tag == "" || len(s.Tag) > maxTag || strings.ContainsAny(s.Tag, ",="):
		return fmt.Errorf("a share cannot have the tag %q", s.Tag)
	case !strings.HasPrefix(s.Dir, "/") || strings.ContainsAny(s.Dir, ",\\"):
		return fmt.Errorf("share %s: virtiofsd cannot share the directory %q", s.Tag, s.Dir)
	case s.Cache != "" && s.Cache != "auto" && s.Cache != "always" && s.Cache != "none":
		return fmt.Errorf("share %s: there is no cache mode %q", s.Tag, s.Cache)
	case s.Timeout < 0 || s.Timeout%time.Second != 0:
		return fmt.Errorf("share %s: the timeout %s is no number of seconds", s.Tag, s.Timeout)
	}
	return nil
}
