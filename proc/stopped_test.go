package proc

import (
	"context"
	"testing"
	"time"
)

func TestAPlaceholderRunsNothingAndDiesWhenItIsKilled(t *testing.T) {
	c := NewChildren()
	child, err := c.StartStopped()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s, err := ReadStat(child.PID())
		if err != nil {
			t.Fatal(err)
		}
		if s.State == 'T' {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s, err := ReadStat(child.PID()); err != nil || s.State != 'T' {
		t.Errorf("its state is %c, %v; want T", s.State, err)
	}
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
