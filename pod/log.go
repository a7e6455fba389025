package pod

import (
	"context"
	"errors"
	"maps"

	"github.com/containerd/log"
)

// Log returns the log of ctx for a line about an app, an exec of it, or neither, and about an
// error, or nil. The fields of lines are listed in docs/troubleshooting.md#the-shims-log.
func Log(ctx context.Context, id AppID, exec ExecID, err error) *log.Entry {
	fields := log.Fields{}
	if id != "" {
		fields["app"] = string(id)
	}
	if exec != "" {
		fields["exec"] = string(exec)
	}
	if err != nil {
		fields["error"] = err
	}
	// A failed call of an entrypoint knows the pod, the stage1 and the entrypoint.
	if call := (interface{ LogFields() log.Fields })(nil); errors.As(err, &call) {
		maps.Copy(fields, call.LogFields())
	}
	return log.G(ctx).WithFields(fields)
}

// log is Log for a line about no app, after the session was made.
func (s *session) log(ctx context.Context, err error) *log.Entry {
	return s.logOf(ctx, "", "", err)
}

func (s *session) logOf(ctx context.Context, id AppID, exec ExecID, err error) *log.Entry {
	entry := Log(ctx, id, exec, err)
	if s.dir == nil {
		return entry
	}
	return entry.WithFields(log.Fields{"pod": s.dir.UUID(), "stage1": s.stage1.Name()})
}

// log is Log for a line about the app, which has joined its session.
func (a *app) log(ctx context.Context, err error) *log.Entry { return a.logOf(ctx, a.process, err) }

// logOf is log for a line about a process of the app.
func (a *app) logOf(ctx context.Context, q *process, err error) *log.Entry {
	return a.session.logOf(ctx, a.id, q.exec, err)
}
