package metrics

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of the server. A client must not be able to keep the node busy.
const (
	requestLimit = 10 * time.Second
	connections  = 16
)

// Server answers GET /metrics with the text of the last collection. Requests cause no
// collection.
type Server struct {
	mu   sync.Mutex
	text []byte
}

// Take takes over the text of a collection.
func (s *Server) Take(c *Collector) error {
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = b.Bytes()
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/metrics":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	default:
		s.mu.Lock()
		text := s.text
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text)
	}
}

// Listen listens on HOST:PORT, or on unix:PATH.
func Listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", address)
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: requestLimit, ReadTimeout: requestLimit, WriteTimeout: requestLimit,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: nil,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(&limited{Listener: l, free: make(chan struct{}, connections)})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// limited is a listener that accepts no more than some connections at a time.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	for err == nil {
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close()
			c, err = l.Listener.Accept()
		}
	}
	return nil, err
}

// counted is one of the connections.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
