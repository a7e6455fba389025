package proc

import (
	"bytes"
	"os"
	"testing"
)

func FuzzATailKeepsTheEndHoweverItIsWritten(f *testing.F) {
	f.Add([]byte("no such file or directory\n"), 7)
	f.Add(bytes.Repeat([]byte("0123456789"), 1000), 512)
	f.Fuzz(func(t *testing.T, text []byte, chunk int) {
		chunk = 1 + chunk&0x3ff
		tail := &Tail{most: 4096}
		for rest := text; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
			tail.keep(rest[:min(chunk, len(rest))])
		}
		if want := text[max(0, len(text)-tail.most):]; !bytes.Equal(tail.kept, want) {
			t.Fatalf("of %d bytes it kept %q", len(text), tail.kept)
		}
	})
}

func TestATailDoesNotWaitForAWriterThatStays(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tail := ReadTail(r, 4)
	if _, err := w.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // later calls return the same
		if got := string(tail.Stop()); got != "6789" {
			t.Errorf("it kept %q", got)
		}
	}
	if _, err := w.WriteString("more"); err == nil {
		t.Error("nobody reads, and the writer is not told")
	}
}
