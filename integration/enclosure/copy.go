package enclosure

import (
	"context"
	"fmt"
	"os/exec"
)

// Copy is a file or directory outside, and its path inside.
type Copy struct{ From, To string }

// Fill copies files into the enclosure, one after another, as `cp -a` does: into To if To is a
// directory by then. Call it between Prepare and Run.
func (e Enclosure) Fill(ctx context.Context, copies ...Copy) error {
	for _, c := range copies {
		if out, err := exec.CommandContext(ctx, "cp", "-a", c.From, e.Path(c.To)).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w: %s", c.From, err, out)
		}
	}
	return nil
}
