package proc_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestARawTerminalPassesEveryByte(t *testing.T) {
	master, slave, err := proc.OpenTerminal(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(master)
	defer unix.Close(slave)
	before, err := proc.MakeRaw(slave)
	if err != nil || before.Lflag&unix.ECHO == 0 {
		t.Fatalf("the mode was %+v, %v", before, err)
	}
	const keys = "a\r\x03\x04\n"
	if _, err := unix.Write(master, []byte(keys)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*len(keys))
	if n, err := unix.Read(slave, buf); err != nil || string(buf[:n]) != keys {
		t.Errorf("read %q, %v", buf[:max(n, 0)], err)
	}
	if _, err := unix.Write(slave, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(master, buf); err != nil || string(buf[:n]) != "\n" {
		t.Errorf("its master reads %q, %v", buf[:max(n, 0)], err)
	}
}
