package supervisor

import (
	"io"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// carry begins to carry the streams.
func (p *process) carry() {
	if len(p.streams) == 1 { // a terminal
		stream, tty := p.streams[0], p.files[0]
		p.carried.Go(func() {
			send(stream, tty)
			_ = stream.Close() // the client has closed the terminal: so does the agent
		})
		p.carried.Go(func() { p.output(stream, tty) })
		return
	}
	for i, stream := range p.streams {
		switch file := p.files[i]; {
		case stream == nil:
		case i == 0:
			p.input(stream, file)
		default:
			p.carried.Go(func() { p.output(stream, file) })
		}
	}
}

// input carries the standard input.
func (p *process) input(stdin *channel.Stream, file *os.File) {
	p.carried.Go(func() {
		send(stdin, file)
		_ = file.Close()
	})
	p.carried.Go(func() {
		// The agent closes its end when the program reads no more. Then the client's next
		// write fails.
		_, _ = io.Copy(io.Discard, stdin)
		_ = file.Close()
		_ = stdin.Close()
	})
}

// send sends what a file or connection has, and then the end of the input. It reads no more than the machine
// accepts.
func send(to *channel.Stream, from io.Reader) {
	buf := make([]byte, channel.MaxInput)
	for {
		n, err := from.Read(buf)
		if n > 0 && channel.Send(to, channel.Input, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = channel.Send(to, channel.End, nil)
			return
		}
	}
}

// output writes what comes from the machine to a file, until its end. A machine may leave the
// output of a process that has ended open, but not silent.
func (p *process) output(from *channel.Stream, to *os.File) {
	buf := make([]byte, channel.MaxInput)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
			p.mu.Lock()
			if p.silent {
				_ = from.SetReadDeadline(time.Now().Add(lastWords))
			}
			p.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// hush ends the input of a process that has ended, and bounds its outputs.
func (p *process) hush() {
	if len(p.files) == 3 && p.files[0] != nil {
		_ = p.files[0].Close()
		p.streams[0].Expire()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	for _, s := range p.streams {
		if s != nil {
			_ = s.SetReadDeadline(time.Now().Add(lastWords))
		}
	}
}
