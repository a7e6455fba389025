package shim

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	ourtypes "github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// containerd is a fake that accepts events, and can be stopped and started again.
type containerd struct {
	t    *testing.T
	path string

	mu      sync.Mutex
	got     []*types.Envelope
	read    int
	refuse  func(*types.Envelope) error
	more    chan struct{}
	srv     *ttrpc.Server
	stopped chan struct{}
}

func newContainerd(t *testing.T) *containerd {
	c := &containerd{t: t, path: filepath.Join(t.TempDir(), "s"), more: make(chan struct{}, 1)}
	t.Cleanup(c.stop)
	return c
}

func (c *containerd) start() {
	c.t.Helper()
	l, err := net.Listen("unix", c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		c.t.Fatal(err)
	}
	eventsapi.RegisterTTRPCEventsService(srv, c)
	stopped := make(chan struct{})
	c.mu.Lock()
	c.srv, c.stopped = srv, stopped
	c.mu.Unlock()
	go func() {
		defer close(stopped)
		_ = srv.Serve(context.Background(), l)
	}()
}

// stop ends the server and all its connections.
func (c *containerd) stop() {
	c.mu.Lock()
	srv, stopped := c.srv, c.stopped
	c.srv = nil
	c.mu.Unlock()
	if srv != nil {
		_ = srv.Close()
		<-stopped
	}
}

func (c *containerd) Forward(_ context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.srv == nil { // a request that was read before the connection was closed
		return nil, errgrpc.ToGRPC(errdefs.ErrUnavailable)
	}
	if c.refuse != nil {
		if err := c.refuse(r.Envelope); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
	}
	c.got = append(c.got, r.Envelope)
	select {
	case c.more <- struct{}{}:
	default:
	}
	return &emptypb.Empty{}, nil
}

// topics returns the topics of all events that have arrived.
func (c *containerd) topics() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, e := range c.got {
		all = append(all, e.Topic)
	}
	return all
}

// next returns the next event, which must have a topic.
func (c *containerd) next(topic string) proto.Message {
	c.t.Helper()
	var e *types.Envelope
	wait.Until(c.t, "event "+topic, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.read == len(c.got) {
			return false
		}
		e = c.got[c.read]
		c.read++
		return true
	})
	if e.Topic != topic || e.Namespace != "testing" || time.Since(e.Timestamp.AsTime()) > time.Hour {
		c.t.Fatalf("event %s in namespace %s at %s, want %s", e.Topic, e.Namespace, e.Timestamp.AsTime(), topic)
	}
	// As containerd does: the type URL is the bare name of the message.
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(e.Event.TypeUrl))
	if err != nil {
		c.t.Fatalf("event %s: %v", topic, err)
	}
	m := mt.New().Interface()
	if err := proto.Unmarshal(e.Event.Value, m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

func envelope(i int) *ourtypes.Envelope {
	return &ourtypes.Envelope{Namespace: "testing", Topic: fmt.Sprint("/n/", i), Timestamp: timestamp(time.Now())}
}

func numbered(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint("/n/", i))
	}
	return all
}

// requirements.md#E2
func TestAllEventsArriveOnceInOrderAcrossRestartsOfContainerd(t *testing.T) {
	checkFDs(t)
	c := newContainerd(t)
	c.start()
	q := newQueue(newForwarder("unix://" + c.path))
	total := 0
	put := func(n int) {
		for range n {
			q.put(envelope(total))
			total++
		}
	}
	for range 3 {
		put(50)
		// Wait for the last answer, too: if it is lost, the event arrives twice.
		wait.Until(t, "delivery", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.waiting) == 0
		})
		c.stop()
		put(50)
		time.Sleep(1500 * time.Millisecond) // the outage
		put(50)
		if n := len(c.topics()); n != total-100 {
			t.Fatalf("%d events although containerd is away", n)
		}
		c.start()
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := q.close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.topics(); !slices.Equal(got, numbered(0, total)) {
		t.Errorf("%d events of %d: %v", len(got), total, got)
	}
}

// requirements.md#E2
func TestAnEventIsTriedUntilItIsTakenAndHoldsBackTheOthers(t *testing.T) {
	c := newContainerd(t)
	c.start()
	tries := 0
	c.refuse = func(e *types.Envelope) error {
		if e.Topic == "/n/0" && tries < 4 {
			tries++
			return fmt.Errorf("starting: %w", errdefs.ErrUnavailable)
		}
		return nil
	}
	q := newQueue(newForwarder(c.path))
	for i := range 3 {
		q.put(envelope(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := q.close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.topics(); !slices.Equal(got, numbered(0, 3)) {
		t.Errorf("%v", got)
	}
}

func TestAnEventThatContainerdRefusesForGoodDoesNotBlockTheOthers(t *testing.T) {
	c := newContainerd(t)
	c.start()
	c.refuse = func(e *types.Envelope) error {
		if e.Topic == "/n/1" {
			return fmt.Errorf("envelope: %w", errdefs.ErrInvalidArgument)
		}
		return nil
	}
	q := newQueue(newForwarder(c.path))
	for i := range 3 {
		q.put(envelope(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := q.close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.topics(); !slices.Equal(got, []string{"/n/0", "/n/2"}) {
		t.Errorf("%v", got)
	}
}

// requirements.md#E3
func TestPublishingNeverBlocksAndTheOldestGoesFirstWhenThereAreTooMany(t *testing.T) {
	c := newContainerd(t) // not started
	q := newQueue(newForwarder(c.path))
	for i := range maxQueued + 10 {
		q.put(envelope(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := q.close(ctx)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxQueued)) {
		t.Errorf("%v, want an error with the number of events", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if first, second := q.waiting[0].Topic, q.waiting[1].Topic; first != "/n/0" || second != "/n/11" {
		t.Errorf("the first events are %s and %s", first, second)
	}
}

// requirements.md#E4
func TestCloseDeliversWhatIsQueued(t *testing.T) {
	c := newContainerd(t)
	c.start()
	q := newQueue(newForwarder(c.path))
	for i := range 500 {
		q.put(envelope(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	for range 2 {
		if err := q.close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.topics(); !slices.Equal(got, numbered(0, 500)) {
		t.Errorf("%d events", len(got))
	}
}

func TestAnEventAfterTheEndOfTheQueueIsReported(t *testing.T) {
	q := newQueue(newForwarder(""))
	if err := q.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.put(envelope(0))
	if err := q.close(t.Context()); err == nil || err.Error() != "1 events came after the end of the queue" {
		t.Errorf("%v, want an error that says how many events are left, and why", err)
	}
}

func TestWithoutAnAddressEventsGoNowhere(t *testing.T) {
	q := newQueue(newForwarder(""))
	q.put(envelope(0))
	if err := q.close(t.Context()); err != nil {
		t.Error(err)
	}
}
