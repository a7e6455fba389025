package proc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestAPlaceholderRunsNothingAndDiesWhenItIsKilled(t *testing.T) {
	c := NewChildren()
	child, err := c.StartStopped()
	if err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "it is stopped", func() (bool, string) {
		s, err := ReadStat(child.PID())
		return err == nil && s.State == 'T', fmt.Sprintf("%c, %v", s.State, err)
	})
	if err := child.Kill(); err != nil {
		t.Error(err)
	}
	if e := child.Wait(); e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}
