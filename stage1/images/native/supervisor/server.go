package supervisor

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/server"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// server answers the pod's entrypoints.
func (s *Supervisor) server() *server.Server {
	return &server.Server{
		Dispatch: s.dispatch,
		Code:     codeOf,
		Answered: func(c *wire.Call) {
			if c.Entrypoint == abi.Stop {
				s.quit(c.Force)
			}
		},
		Log: s.log,
	}
}

// dispatch serves a call.
func (s *Supervisor) dispatch(ctx context.Context, c *wire.Call) error {
	if c.Entrypoint == abi.Stop {
		s.stop(c.Force)
		return nil
	}
	r, err := readRequest(c.Request, c.Entrypoint)
	if err != nil {
		return err
	}
	switch c.Entrypoint {
	case abi.AppAdd:
		return s.add(ctx, c, r)
	case abi.AppStart:
		return s.start(ctx, r)
	case abi.AppStop:
		return s.stopApp(ctx, r)
	case abi.AppRm:
		return s.remove(ctx, r)
	case abi.AppSignal:
		return s.signal(ctx, r)
	case abi.Enter:
		return s.enter(ctx, c, r)
	}
	return unsupported("entrypoint %s is not supported", c.Entrypoint)
}

// readyLine returns the ready line of a process that has not been reaped.
func readyLine(pid int) string {
	line := `{"pid": ` + strconv.Itoa(pid)
	if start := startTime(pid); start != "" {
		line += `, "starttime": ` + start
	}
	return line + "}\n"
}

// report writes a ready line. If nobody reads it, nobody waits.
func report(ready *os.File, line string) {
	if ready != nil {
		_, _ = ready.WriteString(line)
	}
}

// startTime returns field 22 of /proc/PID/stat. The second field is a name in
// parentheses that may hold anything.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	stat := string(b)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
