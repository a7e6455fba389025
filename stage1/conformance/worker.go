package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// worker is a process with a kit of its own, which runs checks one after the other. So the
// remains of a check are descendants of its worker, whatever other checks do at the same
// time.
type worker struct {
	child *proc.Child
	in    *os.File // when it is closed, the worker undoes its running check and ends
	out   *os.File
	says  *json.Decoder
}

// workerVerb is the argument by which Program recognises a worker.
const workerVerb = "checks"

// finding is a worker's report on a check.
type finding struct {
	Outcome Outcome
	Reason  Reason
	Words   string
	Took    time.Duration
	Notes   map[string]string
	Kept    string
	Err     string // set if the worker itself has failed
}

// startWorker starts a worker with the configuration of this kit.
func (k *Kit) startWorker() (_ *worker, err error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	w := &worker{in: in, out: out, says: json.NewDecoder(out)}
	w.child, err = k.children.Start([]string{"/proc/self/exe", workerVerb}, &os.ProcAttr{
		Env: append(os.Environ(), workerVariable+"=1"), Files: []*os.File{theirIn, theirOut, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true}, // the terminal's interrupt must only reach this process
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a process for checks: %w", err), in.Close(), out.Close())
	}
	c := k.config
	c.Dir, c.Doors = k.dir, nil
	return w, json.NewEncoder(in).Encode(c)
}

// check makes the worker run a check.
func (w *worker) check(c Check) (Result, error) {
	r := Result{Check: c}
	if err := json.NewEncoder(w.in).Encode(c.ID); err != nil {
		return r, fmt.Errorf("check %s: %w", c.ID, err)
	}
	var f finding
	if err := w.says.Decode(&f); err != nil {
		return r, fmt.Errorf("check %s: its process: %w", c.ID, err)
	}
	if f.Err != "" {
		return r, errors.New(f.Err)
	}
	r.Outcome, r.Reason, r.Words, r.Duration, r.Notes, r.Kept = f.Outcome, f.Reason, f.Words, f.Took, f.Notes, f.Kept
	return r, nil
}

// end waits until the worker has undone its running check and has ended.
func (w *worker) end() error {
	err := w.in.Close()
	var f finding
	if said := w.says.Decode(&f); said == nil && f.Err != "" {
		err = errors.Join(err, errors.New(f.Err))
	}
	w.child.Wait()
	return errors.Join(err, w.out.Close())
}

// work is the worker's main function. It reads a configuration and the ids of checks, and
// writes findings.
func work(in io.Reader, out io.Writer, doors []stage1.Door) int {
	signal.Ignore(syscall.SIGPIPE)
	log.L.Logger.SetOutput(io.Discard)
	asks, says := json.NewDecoder(in), json.NewEncoder(out)
	var c KitConfig
	if err := asks.Decode(&c); err != nil {
		return 1
	}
	c.Doors = doors
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ids := make(chan string)
	go func() {
		defer close(ids)
		defer cancel()
		for {
			var id string
			if asks.Decode(&id) != nil {
				return
			}
			ids <- id
		}
	}()
	err := workOn(ctx, c, ids, says)
	if err != nil {
		_ = says.Encode(finding{Err: err.Error()})
		return 1
	}
	return 0
}

func workOn(ctx context.Context, c KitConfig, ids <-chan string, says *json.Encoder) (err error) {
	k, err := Open(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil: // the other workers have taken all checks
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	all := Checks()
	for id := range ids {
		i := slices.IndexFunc(all, func(c Check) bool { return c.ID == id })
		r := k.check(ctx, all[i])
		if err := says.Encode(finding{r.Outcome, r.Reason, r.Words, r.Duration, r.Notes, r.Kept, ""}); err != nil {
			return err
		}
	}
	return nil
}
