package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// kin is the relation of a reported process to the call that has reported it, when stage 0
// looks.
type kin int

const (
	reaped kin = iota // it has ended, and its parent has reaped it
	itself            // it is the process of the call
	below             // the call has started it, directly or not
	own               // it is a child of this process
	others            // any other process is its parent
)

func (k kin) String() string {
	return [...]string{
		"has been reaped", "is the process of the call", "is a process that the call has started",
		"is a child of stage 0", "is a child of another process",
	}[k]
}

// recorders says who records the exit of a process. It depends on the recorder in the ready
// line and on the relation of the process to the call. A pair that is not listed is an error:
// docs/stage1-abi.md, section 6.
var recorders = map[abi.Recorder]map[kin]pod.Recorder{
	"": {
		reaped: pod.RecordedByStage1, itself: pod.RecordedByCall, below: pod.RecordedByCall,
		own: pod.RecordedByStage0, others: pod.RecordedByStage1,
	},
	abi.RecorderCall:   {reaped: pod.RecordedByCall, itself: pod.RecordedByCall, below: pod.RecordedByCall},
	abi.RecorderStage0: {own: pod.RecordedByStage0},
	abi.RecorderStage1: {reaped: pod.RecordedByStage1, others: pod.RecordedByStage1},
}

// kin looks at the parents of a reported process. If a parent ends meanwhile, it starts
// again.
func (k *Call) kin(r abi.Ready) kin {
	if k.Child != nil && r.PID == k.Child.PID() {
		return itself
	}
	for {
		s, err := proc.ReadStat(r.PID)
		if err != nil || s.StartTime != r.StartTime {
			return reaped
		}
		if s.Parent == os.Getpid() {
			return own
		}
		if k.Child == nil { // a call on the socket has no process of its own
			return others
		}
		// Between the call and the process there may be a shell and a runtime. The
		// stage1's supervisor is below this process, too, but not below the call.
		parent := s.Parent
		for err == nil && parent > 1 && parent != os.Getpid() {
			if parent == k.Child.PID() {
				return below
			}
			parent, err = proc.Parent(parent)
		}
		if err == nil {
			return others
		}
	}
}

// recorder returns who records the exit of a reported process, and the relation of the
// process to the call. For app/add the call must have ended.
func (k *Call) recorder(ctx context.Context, r abi.Ready) (pod.Recorder, kin, error) {
	if recorders[r.Recorder] == nil {
		return 0, 0, fmt.Errorf("it reported process %d with the recorder %.80q, which is none of %s, %s and %s",
			r.PID, r.Recorder, abi.RecorderStage1, abi.RecorderStage0, abi.RecorderCall)
	}
	is := k.kin(r)
	if is == below && r.Recorder == abi.RecorderStage0 {
		if err := k.awaitEnd(ctx); err != nil {
			return 0, 0, err
		}
		is = k.kin(r)
	}
	recorder, ok := recorders[r.Recorder][is]
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("it reported process %d with the recorder %s, and that process %s", r.PID, r.Recorder, is)
	case k.Entrypoint == abi.AppAdd && recorder == pod.RecordedByCall:
		return 0, 0, fmt.Errorf("it reported process %d as one whose exit is its own, and has ended", r.PID)
	case is == reaped && r.Recorder == "" && !k.Stage1.Mutable():
		recorder = pod.RecordedByCall // an immutable pod has no supervisor
	}
	return recorder, is, nil
}

// outcome delivers the exit of a process when its call has ended.
type outcome func(ended chan<- abi.Status)

// outcome returns nil if the exit of the process does not depend on the end of the call.
func (k *Call) outcome(r abi.Ready, recorder pod.Recorder, is kin) (outcome, error) {
	switch {
	case is == below:
		return k.outcomeBelow(r)
	case recorder == pod.RecordedByCall:
		return k.deliver, nil
	case is == reaped && r.Recorder == "":
		return k.deliverFailure, nil
	}
	return nil, nil
}

// deliver is the outcome for a process that the call has reaped or has become.
func (k *Call) deliver(ended chan<- abi.Status) { ended <- k.Exit }

// noticeLimit is how long after the end of a call the stage1 may take to announce the exit of
// a process that was reaped before stage 0 looked.
const noticeLimit = 5 * time.Second

// deliverFailure is the outcome for a process that was reaped before stage 0 looked. If the
// call ends with a failure, the call has reaped it, and the exit is the call's. Otherwise
// the stage1 announces the exit within noticeLimit, or the exit is lost.
func (k *Call) deliverFailure(ended chan<- abi.Status) {
	if k.Exit.Code != 0 {
		ended <- k.Exit
		return
	}
	time.Sleep(noticeLimit)
	ended <- abi.Status(proc.Killed())
}

// reapLimit is how long a parent may take to reap a process that has ended. The kernel
// reports the exit of another process's child only after that.
const reapLimit = 2 * time.Second

func awaitReaping(p *proc.Process) {
	for wait, until := time.Millisecond, time.Now().Add(reapLimit); p.Signal(0) == nil && time.Now().Before(until); wait = min(2*wait, 50*time.Millisecond) {
		time.Sleep(wait)
	}
}

// outcomeBelow returns the outcome for a process that the call has started. If that process
// becomes a child of stage 0, the outcome is its own wait status, and otherwise the call's
// exit.
func (k *Call) outcomeBelow(r abi.Ready) (outcome, error) {
	p, err := proc.Open(r.PID, r.StartTime)
	if errors.Is(err, proc.ErrGone) {
		return k.deliver, nil // it was reaped since kin has looked
	}
	if err != nil {
		return nil, err
	}
	left := make(chan abi.Status, 1)
	cancel := k.Stage1.Children.AdoptLater(r.PID, r.StartTime, nil, func(e proc.Exit) { left <- abi.Status(e) })
	return func(ended chan<- abi.Status) {
		defer p.Close()
		reaped := p.Signal(0) != nil
		_ = p.Wait(context.Background())
		awaitReaping(p)
		switch exit, known := p.Exit(); {
		case !cancel():
			ended <- <-left
		case known && (!reaped || k.Exit.Code == 0):
			// The process's parent is still running after the call, or a shell has reaped
			// the process on its own.
			ended <- abi.Status(exit)
		case !reaped:
			ended <- abi.Status(proc.Killed())
		default:
			ended <- k.Exit
		}
	}, nil
}
