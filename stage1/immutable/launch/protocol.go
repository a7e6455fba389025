package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// name is the only argument of a launcher.
const name = "rkt-launch"

// Argv returns the command line of a launcher, which is this process's own executable.
func Argv() []string { return []string{"/proc/self/exe", name} }

// Asked reports whether a program was started as a launcher and has to call Main.
func Asked(argv []string) bool { return len(argv) == 2 && argv[1] == name }

// ControlFD is the descriptor of a launcher's socket. It is the next one after the
// descriptors that the ABI gives to `run`.
const ControlFD = 7

// maxOrder is the largest size of a message, in bytes. A message has the arguments and
// environment of an exec.
const maxOrder = 4 << 20

// NewNamespace is the value of Join.Network for a new network namespace.
const NewNamespace = "new"

// Join is the first order. The first three descriptors that come with it become the launcher's
// descriptors 0, 1 and 2.
type Join struct {
	// Cgroups are directories that the process enters.
	Cgroups []string `json:"cgroups,omitempty"`
	// Unified is a directory of version 2 on a host that has both versions, or empty. The launcher may be in a
	// mount namespace in which version 2 is hidden, so its cgroup.procs comes as one more descriptor, the last.
	Unified string `json:"unified,omitempty"`
	// Network is the path of a network namespace to enter, or NewNamespace.
	Network string `json:"network,omitempty"`
	// Terminal makes descriptor 0 the controlling terminal.
	Terminal bool `json:"terminal,omitempty"`
}

// Exec is the last order: the launcher executes this program.
type Exec struct {
	Argv []string `json:"argv"` // argv[0] is its path
	Env  []string `json:"env"`
}

// order is a message: one of the two.
type order struct {
	Join *Join `json:"join,omitempty"`
	Exec *Exec `json:"exec,omitempty"`
}

// send writes an order as one length-prefixed message, with descriptors at its first byte.
func send(socket int, o order, files []int) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(text) > maxOrder {
		return fmt.Errorf("arguments and environment of %d bytes are too long: %w", len(text), unix.E2BIG)
	}
	head := fmt.Appendf(nil, "%08x", len(text))
	if err := proc.Send(socket, head, files...); err != nil {
		return err
	}
	for len(text) > 0 {
		n, err := unix.SendmsgN(socket, text, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// receive reads one order, and the descriptors that came with it.
func receive(socket int) (o order, files []int, err error) {
	head := make([]byte, 8)
	n, files, err := proc.Receive(socket, head, 4)
	if err != nil {
		return o, nil, err
	}
	var size int
	if _, err := fmt.Sscanf(string(head[:n]), "%08x", &size); err != nil || size > maxOrder {
		return o, nil, fmt.Errorf("an order begins with %q and not with its length", head[:n])
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(reader(socket), text); err != nil {
		return o, nil, err
	}
	return o, files, json.Unmarshal(text, &o)
}

// reader reads a descriptor that has no os.File.
type reader int

func (r reader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
