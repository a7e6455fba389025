package stage1

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// Limits of an entry in a pod's journal.
const (
	journalArgs = 16   // arguments that are kept of a call
	journalArg  = 256  // bytes that are kept of each
	journalText = 1024 // bytes that are kept of an error, from its end
)

// entry returns an entry with the fields that every call has. Of a call's entries, only the first
// has the trace.
func (k *Call) entry() journal.Entry {
	e := journal.Entry{
		Time: k.Began, Entrypoint: k.Entrypoint, App: k.Request.App, Exec: k.Request.Exec,
		Millis: float64(time.Since(k.Began).Microseconds()) / 1000,
	}
	e.Argv = append(e.Argv, k.Stage1.Entrypoint(k.Entrypoint))
	for _, arg := range k.Args[:min(len(k.Args), journalArgs)] {
		e.Argv = append(e.Argv, abi.Printable(strings.ToValidUTF8(arg[:min(len(arg), journalArg)], "")))
	}
	if k.Child != nil {
		e.PID = k.Child.PID()
	}
	e.Served = k.asked != nil
	if k.parent != "" {
		e.Traceparent, e.Parent = k.Request.Traceparent, k.parent
		k.parent = ""
	}
	return e
}

// Journal writes a call that has not ended to the journal.
func (k *Call) Journal(state string) {
	e := k.entry()
	e.State = state
	k.write(e)
}

// record writes a call that has succeeded to the journal, with its text from RKT_ERROR_FD.
func (k *Call) record(words string) {
	e := k.entry()
	e.Code, e.Error = k.Exit.Code, lastOf(k.redact(words), journalText)
	k.write(e)
}

func (k *Call) recordFailure(err *EntrypointError) {
	e := k.entry()
	e.Code, e.Error = err.Code, lastOf(k.redact(abi.Printable(err.Text)), journalText)
	k.write(e)
}

// redact removes texts from an error that may be secret: those of the pod's apps and of the exec. The journal
// outlives them, and when it is read they are not known any more.
func (k *Call) redact(text string) string {
	if text == "" {
		return ""
	}
	var s disk.Secrets
	s.AddPod(k.Dir)
	s.AddBundle(k.Request.Bundle)
	if k.Process != nil {
		s.AddProcess(k.Process.OCI.Args, k.Process.OCI.Env)
	}
	return s.Redact(text)
}

// write appends to the journal. If that fails, it logs the error, because nothing else
// depends on the journal.
func (k *Call) write(e journal.Entry) {
	err := k.Stage1.journal.Append(k.Dir, e)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the pod has gone with its journal
		k.log(err).Warnf("stage1 %s: journal of a pod", k.Stage1.name)
	}
}

// log returns the log for a line about the call, and about an error, or nil.
func (k *Call) log(err error) *log.Entry {
	id := pod.AppID(cmp.Or(k.Request.Container, k.Request.App))
	entry := pod.Log(context.Background(), id, pod.ExecID(k.Request.Exec), err).WithFields(log.Fields{"pod": filepath.Base(k.Dir), "stage1": k.Stage1.name})
	if k.Entrypoint == "" { // a note in the journal
		return entry
	}
	return entry.WithField("entrypoint", string(k.Entrypoint))
}

// NoteUnknown writes ignored fields of a client's document to the journal.
func (s *Stage1) NoteUnknown(c pod.Call, fields []string) {
	k := &Call{Stage1: s, Call: c}
	k.write(journal.Entry{Time: time.Now(), App: c.Request.App, Exec: c.Request.Exec, Unknown: fields})
}

// NoteDebug writes who debugs an app to the journal.
func (s *Stage1) NoteDebug(c pod.Call, n pod.DebugNote) {
	text := func(s string) string { return abi.Printable(strings.ToValidUTF8(s[:min(len(s), journalArg)], "")) }
	k := &Call{Stage1: s, Call: c}
	e := journal.Entry{Time: n.Began, App: c.Request.App, State: journal.Ready, Debug: &journal.Debug{
		App: n.Target, UID: n.UID, Login: text(n.Login), PID: n.PID, Image: text(n.Image), Digest: text(n.Digest),
	}}
	if n.Ended != nil {
		e.State, e.Code, e.Millis = "", int(n.Ended.Code), float64(n.Ended.At.Sub(n.Began).Microseconds())/1000
	}
	k.write(e)
}

// lastOf returns the end of a text.
func lastOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return "…" + s
}
