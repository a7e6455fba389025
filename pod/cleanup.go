package pod

import (
	"errors"
)

// cleanup collects undo steps, last in first out.
type cleanup []func() error

func (c *cleanup) add(f func() error) { *c = append(*c, f) }

// run undoes everything and returns err, joined with the errors of the undo
// steps.
func (c cleanup) run(err error) error {
	for i := len(c) - 1; i >= 0; i-- {
		err = errors.Join(err, c[i]())
	}
	return err
}
