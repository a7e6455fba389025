package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// socket is native's, below the root of the stage1.
const socket = "rkt/native.sock"

// run executes the supervisor, in the agent's working directory, and returns when it is ready.
func (a *agent) run(ctx context.Context, c *call) error {
	if c.Run.Sandbox != nil {
		if err := describeHolder(c.Run); err != nil {
			return err
		}
	}
	text, err := json.Marshal(c.Run)
	if err != nil {
		return err
	}
	request := stateDir + "/request"
	if err := os.WriteFile(request, text, 0o600); err != nil {
		return err
	}
	defer os.Remove(request)
	var mine, theirs [3]*os.File // error, ready, notices
	for i := range mine {
		if mine[i], theirs[i], err = os.Pipe(); err != nil {
			return err
		}
	}
	defer closeAll(theirs[:]...)
	lock, err := os.Open(".")
	if err != nil {
		return err
	}
	defer lock.Close()
	attr := &os.ProcAttr{
		Env: []string{
			"PATH=/",
			abi.EnvRequest + "=" + request,
			abi.EnvErrorFD + "=" + strconv.Itoa(abi.ErrorFD),
			abi.EnvReadyFD + "=" + strconv.Itoa(abi.ReadyFD),
			abi.EnvLockFD + "=" + strconv.Itoa(abi.LockFD),
			abi.EnvNotifyFD + "=" + strconv.Itoa(abi.NotifyFD),
		},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, abi.ErrorFD: theirs[0], abi.ReadyFD: theirs[1], abi.LockFD: lock, abi.NotifyFD: theirs[2]},
	}
	child, err := a.children.Make(func() (int, error) {
		p, err := os.StartProcess("/proc/self/exe", []string{"run"}, attr)
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release()
	})
	if err != nil {
		return fmt.Errorf("execute the supervisor: %w", err)
	}
	child.Decide(nil, func(proc.Exit) { a.stop() }) // without it there is nothing to do
	closeAll(theirs[:]...)
	defer closeAll(mine[:2]...)
	defer context.AfterFunc(ctx, func() { _ = child.Kill() })()
	line, err := bufio.NewReader(mine[1]).ReadBytes('\n')
	if err != nil {
		said, _ := io.ReadAll(io.LimitReader(mine[0], abi.MaxErrorText))
		mine[2].Close()
		return fmt.Errorf("the supervisor in the guest: %s", strings.TrimSpace(string(said)))
	}
	go a.listen(mine[2])
	if c.Run.Sandbox != nil {
		if err := a.watchHolder(ctx, line); err != nil {
			return err
		}
	}
	c.reply(channel.Ready, line[:len(line)-1])
	return nil
}

// listen passes the supervisor's notices on.
func (a *agent) listen(notices *os.File) {
	defer notices.Close()
	lines := bufio.NewScanner(notices)
	for lines.Scan() {
		n, err := abi.ParseNotice(lines.Text(), time.Now())
		if err != nil {
			continue
		}
		if n.Exec == "" {
			a.ended(n.App)
		}
		a.notify(n)
	}
}

// ask makes a call of the supervisor. It passes the ready line to ready.
func (a *agent) ask(ctx context.Context, r *abi.Request, fds []int, ready func([]byte)) (code int, said string, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return 1, "", err
	}
	conn, err := serve.Dial(rootfs, socket)
	if err != nil {
		return 1, "", fmt.Errorf("reach the supervisor: %w", err)
	}
	defer conn.Close()
	if err := conn.Send(serve.Call, text, fds...); err != nil {
		return 1, "", fmt.Errorf("reach the supervisor: %w", err)
	}
	defer context.AfterFunc(ctx, conn.HangUp)()
	for {
		word, body, err := conn.Receive(serve.MaxAnswer)
		if err != nil {
			return 1, said, errors.Join(errors.New("the supervisor in the guest has ended over the call"), context.Cause(ctx))
		}
		switch word {
		case serve.Exit:
			code, err := strconv.Atoi(string(body))
			return code, said, err
		case serve.Error:
			said = string(body)
		case serve.Ready:
			if ready != nil {
				ready(body)
			}
		}
	}
}
