package shim

import (
	"testing"
	"time"
)

// A Create without clients waits clientPause once, not for each of its fifos.
func TestTwoFifosWithoutClientsCostOnePause(t *testing.T) {
	out, errs := mkfifo(t, "out"), mkfifo(t, "err")
	o := newOpener("testing", children)
	defer o.close(t.Context())
	o.pause = 500 * time.Millisecond
	clients := time.Now().Add(o.pause)
	s, err := o.open(t.Context(), streams{stdout: out, stderr: errs}, owner{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if late := time.Since(clients); late > o.pause*8/10 {
		t.Errorf("opening took %s longer than a pause of %s", late, o.pause)
	}
}
