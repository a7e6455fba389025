package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// inputFile is the fifo in an app's bundle from which the app reads. The server keeps it open, so
// the app waits for input while nobody is attached. It is missing if the app has no input.
const inputFile = "stdin"

// input returns the path of the app's fifo, which need not exist.
func (a *app) input() string { return filepath.Join(a.bundle(), inputFile) }

// Attachment is a connection with the streams of a running app.
type Attachment struct {
	// Terminal reports whether the app has a terminal.
	Terminal bool

	app    *app
	server *server
	stdin  *os.File // nil: the app has no input
}

// AttachConfig has the caller's side of an attachment.
type AttachConfig struct {
	Stdin    io.Reader // not used if the app has no input
	Stdout   io.Writer // for what the app writes from now on, to its standard output and error
	EndInput bool      // the end of Stdin is the end of the app's input, when nobody else is attached with one
	Resize   <-chan Size
}

// Attach connects to a running app.
func (p *Pod) Attach(ctx context.Context, name string) (_ *Attachment, err error) {
	t := &Attachment{app: p.app(name)}
	st, err := p.Status(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case st.State != Running && st.State != Stopping:
		return nil, t.app.illegal(st.State, "only a running app can be attached to; rktctl logs shows what it has written")
	}
	process, err := t.app.process()
	if err != nil {
		return nil, err
	}
	t.Terminal = process.Terminal
	if t.server, err = p.server(ctx); err != nil {
		return nil, fmt.Errorf("attach to app %s: %w: %w", name, err, errdefs.ErrUnavailable)
	}
	// O_RDWR does not fail if the server has not opened its end yet.
	t.stdin, err = os.OpenFile(t.app.input(), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.server.close()
		return nil, fmt.Errorf("attach to app %s: %w", name, err)
	}
	return t, nil
}

// Input reports whether the app reads what is sent to it.
func (t *Attachment) Input() bool { return t.stdin != nil }

// Close closes the connection. The app runs on, with its input open.
func (t *Attachment) Close() {
	if t.stdin != nil {
		_ = t.stdin.Close()
	}
	t.server.close()
}

// Run moves data until the app has ended, and returns its exit code, or until ctx ends.
func (t *Attachment) Run(ctx context.Context, c AttachConfig) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &follower{app: t.app, to: c.Stdout}
	if err := f.watch(t.app.pod.path(logsDir)); err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.skip(); err != nil { // before the app can answer what is sent
		return 0, err
	}
	fed := make(chan error, 1)
	if t.stdin != nil && c.Stdin != nil {
		// A read of the caller's input cannot be interrupted, so nothing waits for this.
		go func() { fed <- t.feed(ctx, c) }()
	}
	go t.server.resize(ctx, t.app.name, "", c.Resize)
	if err := f.run(ctx); err != nil {
		return 0, err
	}
	select {
	case err = <-fed:
	default:
	}
	switch {
	case err != nil:
		return 0, err
	case f.exit == nil:
		return 0, fmt.Errorf("app %s of pod %s was removed: %w", t.app.name, t.app.pod.uuid, errdefs.ErrNotFound)
	}
	return int(*f.exit), nil
}

// feed copies the caller's input to the app. At its end it ends the app's input, if that is wanted.
func (t *Attachment) feed(ctx context.Context, c AttachConfig) error {
	_, err := io.Copy(t.stdin, c.Stdin)
	_ = t.stdin.Close()
	if err != nil || !c.EndInput {
		return nil // the app, or the attachment, has ended
	}
	// Without its fifo the next attachment knows that nothing can be sent.
	if err := os.Remove(t.app.input()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = t.server.CloseIO(ctx, &task.CloseIORequest{ID: t.app.name, Stdin: true})
	if err = native(err); gone(err) || ctx.Err() != nil {
		return nil
	}
	return err
}
