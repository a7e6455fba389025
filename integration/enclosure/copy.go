package enclosure

import (
	"context"
	"fmt"
	"os/exec"
)

// Copy is a file or directory of the outside, and where it belongs inside.
type Copy struct{ From, To string }

// Fill brings copies into the enclosure, one after another, as `cp -a` does: into To
// if that is a directory by then. It belongs between Prepare and Run.
func (e Enclosure) Fill(ctx context.Context, copies ...Copy) error {
	for _, c := range copies {
		if out, err := exec.CommandContext(ctx, "cp", "-a", c.From, e.Path(c.To)).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w: %s", c.From, err, out)
		}
	}
	return nil
}
