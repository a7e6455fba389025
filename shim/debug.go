package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/shim/debug"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// debugService is the service with which rktctl debugs an app. A call needs memory and
// goroutines only while it lasts.
func (s *Service) debugService() *ttrpc.ServiceDesc {
	return &ttrpc.ServiceDesc{Streams: map[string]ttrpc.Stream{
		debug.Stream: {StreamingClient: true, StreamingServer: true, Handler: func(ctx context.Context, st ttrpc.StreamServer) (any, error) {
			if !s.beginDebug() {
				return nil, errgrpc.ToGRPC(fmt.Errorf("debug: the shim is shutting down: %w", errdefs.ErrUnavailable))
			}
			defer s.debugging.Done()
			// Close ends all calls.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.debugs, cancel)()
			if err := s.debug(ctx, debugStream{st}); err != nil {
				return nil, errgrpc.ToGRPC(printable{err})
			}
			return nil, nil
		}},
	}}
}

// beginDebug counts a call, for which Close waits. It returns false after endDebugs.
func (s *Service) beginDebug() bool {
	s.debugMu.Lock()
	defer s.debugMu.Unlock()
	if s.debugs.Err() != nil {
		return false
	}
	s.debugging.Add(1)
	return true
}

// closeDebugs ends all calls of the debug service, and waits until their apps are removed.
func (s *Service) closeDebugs() {
	s.debugMu.Lock()
	s.endDebugs()
	s.debugMu.Unlock()
	s.debugging.Wait()
}

// debugStream exchanges messages with rktctl.
type debugStream struct{ ttrpc.StreamServer }

func (d debugStream) send(m debug.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return d.SendMsg(&anypb.Any{TypeUrl: debug.Type, Value: text})
}

func (d debugStream) receive() (debug.Message, error) {
	var m debug.Message
	var a anypb.Any
	err := d.RecvMsg(&a)
	if err == nil && a.TypeUrl != debug.Type {
		err = fmt.Errorf("debug: a message of type %q: %w", a.TypeUrl, errdefs.ErrInvalidArgument)
	}
	if err == nil {
		if err = json.Unmarshal(a.Value, &m); err != nil {
			err = fmt.Errorf("debug: %v: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	return m, err
}

// debug serves one debug app, from the request to its removal.
func (s *Service) debug(ctx context.Context, st debugStream) (err error) {
	m, err := st.receive()
	if err != nil {
		return err
	}
	r := m.Request
	if r == nil {
		return fmt.Errorf("debug: the first message is no request: %w", errdefs.ErrInvalidArgument)
	}
	d, err := s.pod.AddDebug(pod.AppID(r.App))
	if err != nil {
		return err
	}
	end := func() error { return d.End(context.WithoutCancel(ctx)) }
	defer func() {
		if endErr := end(); endErr != nil {
			pod.Log(ctx, pod.AppID(r.App), "", endErr).Warn("a debug app is left behind")
		}
	}()
	if err := st.send(debug.Message{Prepared: preparedOf(d.Facts())}); err != nil {
		return err
	}
	if m, err = st.receive(); err != nil {
		return err
	}
	if m.Start == nil {
		return fmt.Errorf("debug: the second message is no start: %w", errdefs.ErrInvalidArgument)
	}
	exit, err := s.runDebug(ctx, st, d, r, m.Start)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	return st.send(debug.Message{Ended: &debug.Ended{Code: exit.Code, At: exit.At}})
}

func preparedOf(f pod.DebugFacts) *debug.Prepared {
	p := &debug.Prepared{ID: string(f.ID), Dir: f.Dir, CgroupsPath: f.CgroupsPath, Namespaces: []debug.Namespace{}}
	for _, n := range f.Namespaces {
		p.Namespaces = append(p.Namespaces, debug.Namespace{Type: string(n.Type), Path: n.Path})
	}
	return p
}

// runDebug makes and starts a debug app, and returns its exit.
func (s *Service) runDebug(ctx context.Context, st debugStream, d pod.Debug, r *debug.Request, start *debug.Start) (pod.Exit, error) {
	f := d.Facts()
	text, err := os.ReadFile(filepath.Join(f.Dir, "config.json"))
	if err != nil {
		return pod.Exit{}, fmt.Errorf("debug app %s: read its spec: %w", f.ID, err)
	}
	q := &process{streams: streams{start.Stdin, start.Stdout, start.Stderr, start.Terminal}, owner: owner{app: f.ID, bundle: f.Dir}}
	if target, err := s.pod.Status(pod.AppID(r.App), ""); err == nil { // it has the target's users
		o := processOf(target.Tag).owner
		q.uid, q.gid = o.uid, o.gid
	}
	if q.stdio, err = s.opener.open(ctx, q.streams, q.owner); err != nil {
		return pod.Exit{}, fmt.Errorf("debug app %s: %w", f.ID, err)
	}
	note := pod.DebugNote{Began: time.Now(), UID: r.UID, Login: r.Login, PID: r.PID, Image: r.Image, Digest: r.Digest}
	d.Note(note)
	pod.Log(ctx, pod.AppID(r.App), "", nil).Infof("user %d %q debugs container %s with the image %s %s", r.UID, r.Login, r.App, r.Image, r.Digest)
	exit := pod.Exit{Code: 128, At: time.Now()} // of an app that was not started
	defer func() {
		if exit.At.IsZero() { // the call ends before the app
			exit = pod.Exit{Code: 137, At: time.Now()}
		}
		note.Ended = &exit
		d.Note(note)
	}()
	var mounts []*types.Mount
	for _, m := range start.Mounts {
		mounts = append(mounts, &types.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	err = d.Create(ctx, pod.DebugConfig{
		Spec: text, Rootfs: newRootfs(mounts, s.cfg.Children), Stdio: q.stdio, Terminal: start.Terminal, Events: streamsOnly{}, Tag: q,
	})
	if err != nil {
		return exit, err
	}
	q.stdio.feed()
	pid, err := d.Start(ctx)
	if err != nil {
		return exit, err
	}
	if err := st.send(debug.Message{Started: &debug.Started{PID: pid}}); err != nil {
		return exit, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.debugging.Go(func() {
		defer cancel() // rktctl has ended the stream
		controlDebug(ctx, st, d)
	})
	exit, err = d.Wait(ctx)
	return exit, err
}

// controlDebug carries out what rktctl asks of a debug app that runs, until the stream ends.
func controlDebug(ctx context.Context, st debugStream, d pod.Debug) {
	for {
		m, err := st.receive()
		if err != nil || ctx.Err() != nil {
			return
		}
		switch c := m.Control; {
		case c == nil:
		case c.Signal != 0:
			err = d.Signal(ctx, c.Signal)
		case c.CloseStdin:
			err = d.CloseStdin()
		case c.Size != nil:
			err = d.Resize(pod.Size{Width: c.Size.Width, Height: c.Size.Height})
		}
		if err != nil && !errdefs.IsNotFound(err) {
			pod.Log(ctx, pod.AppID(d.Facts().ID), "", err).Warn("debug")
		}
	}
}

// streamsOnly gets the events of a debug app. containerd does not know the app, so nothing is
// published.
type streamsOnly struct{}

var _ pod.Events = streamsOnly{}

// Publish tells the app's streams that its process has ended.
func (streamsOnly) Publish(e pod.Event) {
	if e.Kind == pod.EventExited {
		ended(e)
	}
}
