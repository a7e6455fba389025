package crash

import (
	"context"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Stopper is a stage1 with only the entrypoints that `delete` calls. Its stop
// ends the recorded supervisor.
type Stopper struct {
	Calls *[]abi.Entrypoint // if set, gets the calls
	Hang  bool
}

func (Stopper) Has(abi.Entrypoint) bool { return true }
func (Stopper) Attach(string) error     { return nil }
func (Stopper) Detach(string) error     { return nil }

func (s Stopper) Call(ctx context.Context, _ string, leader int, r abi.Request) error {
	if s.Calls != nil {
		*s.Calls = append(*s.Calls, r.Entrypoint)
	}
	if s.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if r.Entrypoint == abi.Stop && leader != 0 {
		return syscall.Kill(leader, syscall.SIGKILL) // a test's own child
	}
	return nil
}
