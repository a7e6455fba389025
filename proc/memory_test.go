package proc_test

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestAFileInMemoryIsReadFromItsStartAndNotInherited(t *testing.T) {
	for _, content := range []string{"", "some words"} {
		f, err := proc.Memory("test", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := io.ReadAll(f); err != nil || string(got) != content {
			t.Errorf("read %q, %v; want %q", got, err, content)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
	}
}
