package manager

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fakeService is a Task service whose containers are entries of a map.
type fakeService struct {
	task.TTRPCTaskService // nil: its methods are not called

	boot   Bootstrap
	ending chan struct{}
	done   chan struct{}

	mu         sync.Mutex
	containers map[string]*fakeContainer
}

type fakeContainer struct {
	ended  chan struct{}
	signal uint32
}

func serveFake(ctx context.Context, b Bootstrap) (*Service, error) {
	s := &fakeService{
		boot:       b,
		ending:     make(chan struct{}),
		done:       make(chan struct{}),
		containers: map[string]*fakeContainer{},
	}
	return &Service{
		Register: func(t *ttrpc.Server) { task.RegisterTTRPCTaskService(t, s) },
		Ending:   s.ending,
		Done:     s.done,
		Close: func(context.Context) error {
			log.G(ctx).Info("service closed")
			return nil
		},
	}, nil
}

var errNotFound = status.Error(codes.NotFound, "no such container")

func (s *fakeService) find(id string) (*fakeContainer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, errNotFound
}

// Connect answers with the server's own bootstrap as the version.
func (s *fakeService) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	b := s.boot
	text := strings.Join([]string{b.Namespace, b.ID, b.Group, b.Stage1.Name, b.LogLevel, b.TTRPCAddress, b.ContainerdVersion}, "|")
	for _, e := range b.Extensions {
		text += "|" + e.TypeURL + "=" + string(e.Value)
	}
	text += "|pids:" + b.Cgroups["pids"]
	return &task.ConnectResponse{ShimPid: uint32(os.Getpid()), Version: text}, nil
}

func (s *fakeService) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.ID == "chatty" {
		for range 2000 {
			log.G(ctx).Info(strings.Repeat("x", 1000))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[r.ID] = &fakeContainer{ended: make(chan struct{})}
	return &task.CreateTaskResponse{Pid: 42}, nil
}

func (s *fakeService) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	if _, err := s.find(r.ID); err != nil {
		return nil, err
	}
	return &task.StateResponse{ID: r.ID}, nil
}

func (s *fakeService) Kill(_ context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	c, err := s.find(r.ID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.signal == 0 {
		c.signal = r.Signal
		close(c.ended)
	}
	return &emptypb.Empty{}, nil
}

func (s *fakeService) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	c, err := s.find(r.ID)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.ended:
		return &task.WaitResponse{ExitStatus: 128 + c.signal}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Delete of a container whose id is "slow" is answered after the Shutdown that follows
// was carried out.
func (s *fakeService) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	c, err := s.find(r.ID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	delete(s.containers, r.ID)
	s.mu.Unlock()
	if r.ID == "slow" {
		log.G(ctx).Info("deletes slowly")
		<-s.done
	}
	if r.ID == "brief" {
		log.G(ctx).Info("deletes briefly")
		time.Sleep(500 * time.Millisecond)
		log.G(ctx).Info("has deleted")
	}
	return &task.DeleteResponse{Pid: 42, ExitStatus: 128 + c.signal, ExitedAt: timestamppb.Now()}, nil
}

func (s *fakeService) Shutdown(context.Context, *task.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.containers) > 0 {
		return &emptypb.Empty{}, nil
	}
	select {
	case <-s.ending:
	default:
		close(s.ending)
		time.AfterFunc(10*time.Millisecond, func() { close(s.done) })
	}
	return &emptypb.Empty{}, nil
}
