package rpcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// waits is the time after which an unanswered Wait counts as waiting.
	waits = 3 * time.Second
	// patience bounds a question with all its preparations.
	patience = time.Minute
	// together is the number of questions that are asked at the same time.
	together = 4
)

// Rig describes the environment of the questions.
type Rig struct {
	Client  *containerd.Client
	Image   containerd.Image
	Runtime string
	// Args is a program that runs for a long time, and ends by SIGKILL.
	Args []string
	// Bundle is the directory of a container's bundle.
	Bundle func(id string) string
	// Prefix is the prefix of the ids of the containers, which are removed.
	Prefix string
	// Leave means that the caller removes what a shim leaves.
	Leave bool
}

// Ask asks every question of shims of the rig's runtime.
func Ask(ctx context.Context, r Rig) (Answers, error) {
	var (
		mu      sync.Mutex
		group   sync.WaitGroup
		answers = Answers{}
		errs    []error
		places  = make(chan struct{}, together)
		serial  int
	)
	for _, c := range calls() {
		for _, s := range states() {
			if !c.asks(s) {
				continue
			}
			serial++
			id := fmt.Sprintf("%s%d", r.Prefix, serial)
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				q := Question{c.name, s.name, s.exec}
				answer, err := r.ask(ctx, id, c, s)
				mu.Lock()
				defer mu.Unlock()
				answers[q] = answer
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", q, err))
				}
			})
		}
	}
	group.Wait()
	return answers, errors.Join(errs...)
}

// ask makes one call to a container of its own.
func (r Rig) ask(ctx context.Context, id string, c call, s state) (_ Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	container, err := r.Client.NewContainer(ctx, id, containerd.WithNewSnapshot(id, r.Image), containerd.WithRuntime(r.Runtime, nil),
		containerd.WithNewSpec(oci.WithImageConfig(r.Image), oci.WithDefaultUnixDevices, oci.WithProcessArgs(r.Args...)))
	if err != nil {
		return Answer{}, err
	}
	defer func() {
		if e := remove(container); err == nil && !r.Leave {
			err = e
		}
	}()
	if _, err := container.NewTask(ctx, cio.NullIO); err != nil {
		return Answer{}, err
	}
	conn, err := dial(r.Bundle(id))
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	sub := &subject{shim: taskapi.NewTTRPCTaskClient(conn), id: id, bundle: r.Bundle(id)}
	if sub.process, err = processOf(sub.bundle); err != nil {
		return Answer{}, err
	}
	if s.exec {
		sub.exec = execID
	}
	for _, reach := range s.reach {
		if err := reach(ctx, sub); err != nil {
			return Answer{}, fmt.Errorf("reach the state: %w", err)
		}
	}
	answer, err := sub.answer(ctx, c)
	if !s.exec && answer.Then == codes.NotFound.String() { // containerd still has the task, because the Delete went to the shim
		_, _ = sub.shim.Shutdown(ctx, &taskapi.ShutdownRequest{ID: id}) // the shim may close the connection first
	}
	return answer, err
}

// answer makes the call, and finds the state that follows.
func (s *subject) answer(ctx context.Context, c call) (Answer, error) {
	err := c.make(ctx, s)
	switch {
	case errors.Is(err, errWaits):
		return Answer{Code: "waits"}, nil
	case err != nil:
		return Answer{Code: code(err), Text: status.Convert(err).Message()}, ctx.Err()
	}
	answer := Answer{Code: "OK"}
	if c.ends {
		ctx, cancel := context.WithTimeout(ctx, waits)
		defer cancel()
		_, _ = s.shim.Wait(ctx, &taskapi.WaitRequest{ID: s.id, ExecID: s.exec}) // the state is the result
	}
	now, err := s.shim.State(ctx, &taskapi.StateRequest{ID: s.id, ExecID: s.exec})
	switch {
	case errors.Is(err, ttrpc.ErrClosed):
		answer.Then = "gone"
	case err != nil:
		answer.Then = code(err)
	default:
		answer.Then = now.Status.String()
	}
	return answer, ctx.Err()
}

// code returns gRPC's name of an error's kind.
func code(err error) string {
	if c := status.Code(err); c != codes.OK {
		return c.String()
	}
	return "OK"
}

// dial connects with the shim of a bundle.
func dial(bundle string) (*ttrpc.Client, error) {
	b, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
	if err != nil {
		return nil, err
	}
	var bootstrap struct{ Address string }
	if err := json.Unmarshal(b, &bootstrap); err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(bootstrap.Address, "unix://"))
	if err != nil {
		return nil, err
	}
	return ttrpc.NewClient(conn), nil
}

// remove removes the container of a question.
func remove(container containerd.Container) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if task, err := container.Task(ctx, nil); err == nil {
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			return fmt.Errorf("delete the task: %w", err)
		}
	}
	return container.Delete(ctx, containerd.WithSnapshotCleanup)
}
