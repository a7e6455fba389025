package shim

import (
	"context"
	"reflect"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/wire/events"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// publisher turns the pod's events into containerd's and queues them. It adds the fields
// that only the service knows.
type publisher struct{ s *Service }

var _ pod.Events = publisher{}

// Publish queues an event. It does not block, so it may be called from anywhere.
func (p publisher) Publish(e pod.Event) {
	if e.Kind == pod.EventExited {
		ended(e)
	}
	if e.Exec == "" { // the sandbox may end with this app, and then no event is queued any more
		switch e.Kind {
		case pod.EventExited:
			defer p.s.appEnded()
		case pod.EventDeleted:
			defer p.s.appGone()
		}
	}
	topic, msg := message(e)
	if msg == nil {
		pod.Log(context.Background(), e.App, e.Exec, nil).Warnf("no event of containerd's for %q of container %s", e.Kind, e.App)
		return
	}
	body, err := anyOf(events.Prefix+reflect.TypeOf(msg).Elem().Name(), msg)
	if err != nil {
		pod.Log(context.Background(), e.App, e.Exec, err).Errorf("event %s of container %s", topic, e.App)
		return
	}
	p.s.events.put(&types.Envelope{
		Timestamp: timestamp(time.Now()),
		Namespace: p.s.cfg.Namespace,
		Topic:     topic,
		Event:     body,
	})
}

// ended tells the streams of a process that the process has ended. A terminal's stream
// has no other sign of that (see stream.Hangup).
func ended(e pod.Event) {
	if io := processOf(e.Tag).stdio; io != nil {
		io.ended()
	}
}

// message returns the topic and the message of an event (docs/requirements.md, *Events*).
func message(e pod.Event) (string, any) {
	id, pid := string(e.App), uint32(e.PID)
	switch e.Kind {
	case pod.EventCreated:
		return "/tasks/create", taskCreate(e)
	case pod.EventStarted:
		return "/tasks/start", &events.TaskStart{ContainerID: id, Pid: pid}
	case pod.EventExecAdded:
		return "/tasks/exec-added", &events.TaskExecAdded{ContainerID: id, ExecID: string(e.Exec)}
	case pod.EventExecStarted:
		return "/tasks/exec-started", &events.TaskExecStarted{ContainerID: id, ExecID: string(e.Exec), Pid: pid}
	case pod.EventPaused:
		return "/tasks/paused", &events.TaskPaused{ContainerID: id}
	case pod.EventResumed:
		return "/tasks/resumed", &events.TaskResumed{ContainerID: id}
	case pod.EventCheckpointed:
		return "/tasks/checkpointed", &events.TaskCheckpointed{ContainerID: id, Checkpoint: e.Checkpoint}
	case pod.EventOOM:
		return "/tasks/oom", &events.TaskOOM{ContainerID: id}
	case pod.EventExited:
		return "/tasks/exit", &events.TaskExit{
			ContainerID: id,
			ID:          processID(id, string(e.Exec)),
			Pid:         pid,
			ExitStatus:  e.Exit.Code,
			ExitedAt:    timestamp(e.Exit.At),
		}
	case pod.EventDeleted:
		return "/tasks/delete", &events.TaskDelete{
			ContainerID: id,
			Pid:         pid,
			ExitStatus:  e.Exit.Code,
			ExitedAt:    timestamp(e.Exit.At),
		}
	}
	return "", nil
}

// taskCreate returns the event of a created app, with the fields of the client's request.
func taskCreate(e pod.Event) *events.TaskCreate {
	p := processOf(e.Tag)
	msg := &events.TaskCreate{
		ContainerID: string(e.App), Pid: uint32(e.PID), Bundle: p.bundle, Rootfs: p.rootfs, Checkpoint: p.checkpoint,
		IO: &events.TaskIO{Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Terminal: p.terminal},
	}
	p.rootfs = nil // no other event has these fields
	return msg
}
