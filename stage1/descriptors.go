package stage1

import (
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"golang.org/x/sys/unix"
)

// descriptors is the table of descriptors that a call inherits.
type descriptors struct {
	table [abi.NotifyFD + 1]*os.File
	own   []*os.File // closed here when the call has its own copies
	// lasting is the pod's directory if the call lasts as long as the pod.
	lasting string
}

// files returns the table up to the last descriptor that is in it.
func (d *descriptors) files() []*os.File {
	n := len(d.table)
	for n > 0 && d.table[n-1] == nil {
		n--
	}
	return d.table[:n]
}

func (d *descriptors) close() { proc.CloseFiles(d.own...) }

// makePipe makes the pipe of a descriptor. That of the ready line is closed when the call is ready.
func (d *descriptors) makePipe(fd int) ([2]int, error) {
	if d.lasting != "" && fd != abi.ReadyFD {
		return makeFIFO(d.lasting)
	}
	return makePipe()
}

// pipe makes a pipe. The call gets the write end as descriptor fd; the write end
// blocks, because a shell expects that. The runtime's poller waits for the read
// end.
func (d *descriptors) pipe(fd int) (*os.File, error) {
	p, err := d.makePipe(fd)
	if err != nil {
		return nil, err
	}
	d.table[fd] = os.NewFile(uintptr(p[1]), "pipe")
	d.own = append(d.own, d.table[fd])
	if err := unix.SetNonblock(p[0], true); err != nil {
		_ = unix.Close(p[0])
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "pipe"), nil
}

// open fills the descriptor table of the call.
func (k *Call) open(d *descriptors) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d.own = append(d.own, null)
	if k.Entrypoint == abi.Run {
		d.lasting = k.Dir
	}
	r, err := d.pipe(abi.ErrorFD)
	if err != nil {
		return err
	}
	k.words = proc.ReadTail(r, abi.MaxErrorText)
	gets := k.Stage1.Dialect.Descriptors(k)
	if gets.Streams {
		for fd, f := range k.Stdio {
			if f == nil {
				f = null
			}
			d.table[fd] = f
		}
	} else {
		d.table[0], d.table[1], d.table[2] = null, d.table[abi.ErrorFD], d.table[abi.ErrorFD]
	}
	if k.answer != nil {
		d.table[1] = k.answer
	}
	if gets.ready {
		if k.ready, err = d.pipe(abi.ReadyFD); err != nil {
			return err
		}
	}
	if k.Entrypoint == abi.Run {
		d.table[abi.LockFD] = k.Lock
	}
	if !gets.errors {
		d.table[abi.ErrorFD] = nil
	}
	if gets.notices {
		if k.notices, err = d.pipe(abi.NotifyFD); err != nil {
			return err
		}
	}
	return nil
}
