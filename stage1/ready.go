package stage1

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// maxReady bounds the ready line, in bytes.
const maxReady = 256

// awaitReady waits for the ready line. The end of the call or of the pipe before
// it is a failure.
func (k *call) awaitReady(ctx context.Context) (abi.Ready, error) {
	ctx, cancel := k.limit(ctx)
	defer cancel()
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReaderSize(io.LimitReader(k.ready, maxReady), maxReady).ReadSlice('\n')
		read <- result{line, err}
	}()
	ended := k.child.Done()
	for {
		select {
		case r := <-read:
			return k.parseReady(ctx, r.line, r.err)
		case <-ended:
			// What it wrote is in the pipe; what has inherited the pipe will not
			// write.
			_ = k.ready.SetReadDeadline(time.Now().Add(lastWords))
			ended = nil
		case <-ctx.Done():
			err := k.hung(ctx)
			_ = k.ready.SetReadDeadline(time.Now())
			<-read
			return abi.Ready{}, err
		}
	}
}

// parseReady checks a ready line, or says why there is none.
func (k *call) parseReady(ctx context.Context, line []byte, err error) (abi.Ready, error) {
	if err != nil && len(line) == 0 {
		if errors.Is(err, io.EOF) {
			// Either it closes its end and goes on to fail, or it hangs.
			select {
			case <-k.child.Done():
				return abi.Ready{}, errEnded
			case <-ctx.Done():
				return abi.Ready{}, k.hung(ctx)
			}
		}
		return abi.Ready{}, errEnded
	}
	r, perr := decodeReady(line)
	if perr != nil {
		return r, perr
	}
	start, serr := proc.StartTime(r.PID)
	switch {
	case serr != nil && k.entrypoint == abi.Enter:
		// A short exec may have ended and been reaped already.
	case serr != nil:
		return r, fmt.Errorf("it reported pid %d as ready, and there is no such process", r.PID)
	case r.StartTime == 0:
		r.StartTime = start
	case r.StartTime != start:
		return r, fmt.Errorf("it reported pid %d as started at %d, and that process started at %d", r.PID, r.StartTime, start)
	}
	return r, nil
}

func decodeReady(line []byte) (abi.Ready, error) {
	var r abi.Ready
	if err := json.Unmarshal(line, &r); err != nil || r.PID <= 0 {
		return r, fmt.Errorf("it wrote %.80q to RKT_READY_FD instead of a line like {\"pid\": 4711}", line)
	}
	return r, nil
}

// recorder tells who records the exit of the process that `enter` has reported:
// docs/stage1-abi.md, section 6.
func (k *call) recorder(pid int) pod.Recorder {
	parent, err := proc.Parent(pid)
	if err == nil && parent == os.Getpid() {
		return pod.RecordedByStage0
	}
	// Between the call and the process there may be a shell and a runtime. The
	// stage1's supervisor is below this process, too, but not below the call.
	for err == nil && parent > 1 && parent != os.Getpid() {
		if parent == k.child.PID() {
			return pod.RecordedByCall
		}
		parent, err = proc.Parent(parent)
	}
	return pod.RecordedByStage1
}
