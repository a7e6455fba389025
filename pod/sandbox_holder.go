package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// holderScore is the holder's OOM score. It keeps the kernel from killing the holder
// when memory is short, because the whole pod would end with it.
const holderScore = -998

// kill ends the holder. watch reports its exit.
func (h *holder) kill(ctx context.Context) {
	err := proc.Signal(h.pid, h.start, syscall.SIGKILL)
	if err != nil && !errors.Is(err, proc.ErrGone) {
		Log(ctx, "", "", err).Errorf("kill the holder %d of a pod", h.pid)
	}
}

// afterRun takes over the process that the stage1 has reported, and watches it. Until
// it returns, unknown children must not be reaped.
func (sb *sandbox) afterRun(ctx context.Context, leader abi.Ready) error {
	s := sb.session
	if err := checkHolder(leader.PID, sb.request); err != nil && !s.stage1.Owns(abi.OwnNamespaces) {
		return fmt.Errorf("stage1 %s cannot make this pod: process %d, which it reported as the pod's, %w; "+
			"a pod of it needs a pause container (sandboxer = \"podsandbox\"): %w", s.stage1.Name(), leader.PID, err, errdefs.ErrNotImplemented)
	}
	h := &holder{pid: leader.PID, start: leader.StartTime}
	score := []byte(strconv.Itoa(holderScore))
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", h.pid), score, 0)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // the process may lack CAP_SYS_RESOURCE
		return fmt.Errorf("holder of the sandbox: %w", err)
	}
	sb.holder = h
	sb.mu.Lock()
	sb.status.PID = h.pid
	sb.mu.Unlock()
	if err := sb.files.SetHolder(h.pid, h.start); err != nil {
		return err
	}
	sb.network.tell(ctx, false)
	return sb.watch(ctx, h)
}

// checkHolder checks that a process is in the namespaces of a sandbox: a stage1 that
// does not know sandboxes would leave the pod in the host's.
func checkHolder(pid int, s *abi.Sandbox) error {
	files := map[string]string{"network": "net", "mount": "mnt"}
	for _, ns := range s.Namespaces {
		file := files[ns.Type]
		if file == "" {
			file = ns.Type
		}
		theirs, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, file))
		if err != nil {
			return fmt.Errorf("has a %s namespace that cannot be seen: %w", ns.Type, err)
		}
		other, wanted := "/proc/self/ns/"+file, false
		if ns.Path != "" {
			other, wanted = ns.Path, true
		}
		named, err := os.Stat(other)
		if err != nil {
			return fmt.Errorf("is to be in the %s namespace %s: %w", ns.Type, other, err)
		}
		if os.SameFile(theirs, named) != wanted {
			if ns.Path != "" {
				return fmt.Errorf("is not in the %s namespace %s", ns.Type, ns.Path)
			}
			return fmt.Errorf("has no %s namespace of its own", ns.Type)
		}
	}
	return nil
}

// watch waits for the holder's end: as its parent, if the stage1 has left the holder
// to this process, or else by a pidfd.
func (sb *sandbox) watch(ctx context.Context, h *holder) error {
	ctx = lasting(ctx)
	if h.pid != sb.session.sup.PID { // which is waited for already
		err := sb.pod.cfg.Children.Adopt(h.pid, h.start, nil, func(e proc.Exit) { sb.released(ctx, toExit(abi.Status(e))) })
		if err == nil {
			return nil
		}
		if !errors.Is(err, proc.ErrNotChild) {
			return fmt.Errorf("holder of the sandbox: %w", err)
		}
	}
	p, err := proc.Open(h.pid, h.start)
	if err != nil {
		return fmt.Errorf("holder of the sandbox: %w", err)
	}
	go func() {
		defer p.Close()
		_ = p.Wait(ctx)
		sb.released(ctx, killedExit())
	}()
	return nil
}

// released is called when the holder has ended. It ends the apps, which share the
// holder's namespaces.
func (sb *sandbox) released(ctx context.Context, e Exit) {
	ctx, cancel := context.WithTimeout(ctx, execDrain)
	defer cancel()
	if !sb.current().stopRequested() {
		sb.session.log(ctx, nil).Warnf("sandbox %s: its holder %d has ended with code %d: its containers are killed", sb.config.ID, sb.holder.pid, e.Code)
	}
	if err := sb.pod.killApps(ctx, 0); err != nil {
		sb.session.log(ctx, err).Errorf("sandbox %s: its holder has ended; cannot kill its containers", sb.config.ID)
	}
	sb.ended(e)
}
