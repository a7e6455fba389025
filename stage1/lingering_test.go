package stage1

import (
	"os"
	"testing"
)

func TestWhatAClientHasNotReadIsWaitedFor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l := lingers(os.Getpid(), [3]*os.File{1: w})
	defer l.close()
	expect := func(want bool, when string) {
		t.Helper()
		if got := l.unread(); got != want {
			t.Errorf("%s: unread is %t", when, got)
		}
	}
	say := func() {
		t.Helper()
		before := l.written()
		if _, err := w.WriteString("last words"); err != nil {
			t.Fatal(err)
		}
		if now := l.written(); now < before+10 {
			t.Errorf("written was %d and is %d", before, now)
		}
	}
	expect(false, "at first")
	say()
	expect(true, "before the client reads")
	if _, err := r.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	expect(false, "once the client has read")
	say()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	expect(false, "once the client has gone")
}
