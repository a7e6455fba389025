package channel

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// How long a machine may be silent. The host sends a ping in each interval; a machine that
// does not answer one, or does not take a stream, within silence has hung. A machine without
// KVM on a busy host is slow. After the host has closed its end of a stream, it keeps the other
// end for linger.
const (
	interval = 30 * time.Second
	silence  = 2 * time.Minute
	linger   = time.Minute
)

// backlog is how many streams the host may open before the agent has accepted the first.
const backlog = 256

// Session is one end of a connection.
type Session struct{ mux *yamux.Session }

// Stream is a stream of a session. The host closes its end only when it wants nothing more
// from the agent. The agent's Close ends what it sends.
type Stream struct{ *yamux.Stream }

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = backlog
	c.KeepAliveInterval = interval
	c.ConnectionWriteTimeout = silence
	c.StreamOpenTimeout = silence
	c.StreamCloseTimeout = linger
	c.LogOutput = io.Discard // the peer decides how much that would be
	return c
}

// Host returns the host's end. It takes ownership of conn, whose Close must end a Read.
func Host(conn io.ReadWriteCloser) (*Session, error) { return host(conn, config()) }

func host(conn io.ReadWriteCloser, c *yamux.Config) (*Session, error) {
	s, err := yamux.Client(&filter{ReadWriteCloser: gather(conn)}, c)
	return &Session{s}, err
}

// Guest returns the agent's end. It takes ownership of conn.
func Guest(conn io.ReadWriteCloser) (*Session, error) {
	c := config()
	c.EnableKeepAlive = false // the host refuses an agent's pings
	c.StreamCloseTimeout = 0  // a client of the host may read the rest of an output after hours
	s, err := yamux.Server(gather(conn), c)
	return &Session{s}, err
}

// Open opens a stream and sends its first message. Only the host opens streams. When ctx ends
// before the machine has taken the message, Open returns, and the stream is closed later.
func (s *Session) Open(ctx context.Context, word Word, body []byte) (*Stream, error) {
	type opened struct {
		stream *yamux.Stream
		err    error
	}
	result := make(chan opened, 1)
	go func() { // yamux waits without a context, at most until silence has passed
		y, err := s.mux.OpenStream()
		if err == nil {
			if err = Send(y, word, body); err != nil {
				_ = y.Close()
			}
		}
		result <- opened{y, err}
	}()
	select {
	case o := <-result:
		if o.err != nil {
			return nil, fmt.Errorf("reach the machine's agent: %w", o.err)
		}
		return &Stream{o.stream}, nil
	case <-ctx.Done():
		go func() {
			if o := <-result; o.err == nil {
				_ = o.stream.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Accept waits for the host's next stream.
func (s *Session) Accept() (*Stream, error) {
	y, err := s.mux.AcceptStream()
	if err != nil {
		return nil, err
	}
	return &Stream{y}, nil
}

// Done is closed when the connection has ended.
func (s *Session) Done() <-chan struct{} { return s.mux.CloseChan() }

// Close ends the connection and all streams.
func (s *Session) Close() error { return s.mux.Close() }

// Number is the number of a stream, the same at both ends.
func (s *Stream) Number() uint32 { return s.StreamID() }

// Expire ends waiting reads and writes of the stream, and all later ones.
func (s *Stream) Expire() { _ = s.SetDeadline(time.Unix(1, 0)) }
