package stage1

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

const traceparent abi.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// entries returns the journal, once it has n entries.
func (p *fakePod) entries(t *testing.T, n int) (entries []journal.Entry) {
	t.Helper()
	wait.Until(t, "all calls are in the journal", func() bool {
		var err error
		if entries, err = journal.Read(p.dir); err != nil {
			t.Fatal(err)
		}
		return len(entries) == n
	})
	return entries
}

func TestACallHasASpanBelowItsClientsInRequestEnvironmentAndJournal(t *testing.T) {
	p := newFakePod(t, all())
	ctx := pod.WithTrace(t.Context(), traceparent)
	spans := map[string]bool{traceparent.Span(): true}
	for n, e := range []abi.Entrypoint{abi.AppStart, abi.AppRm} {
		if err := p.Invoke(ctx, p.call(e)); err != nil {
			t.Fatal(err)
		}
		got := p.entries(t, n+1)[n]
		if got.Parent != traceparent.Span() || got.Traceparent == "" || got.Traceparent.Trace() != traceparent.Trace() || !got.Traceparent.Sampled() {
			t.Fatalf("%+v", got)
		}
		if span := got.Traceparent.Span(); spans[span] || !abi.IsSpan(span) {
			t.Errorf("%s has the span %q, which another one has", e, span)
		} else {
			spans[span] = true
		}
		if env := p.dumped(t, e, "env"); !strings.Contains(env, "\nRKT_TRACEPARENT="+string(got.Traceparent)+"\n") {
			t.Errorf("%s: environment %s", e, env)
		}
		if request := p.dumped(t, e, "request"); !strings.Contains(request, `"traceparent":"`+string(got.Traceparent)+`"`) {
			t.Errorf("%s: request %s", e, request)
		}
	}
	if err := p.Invoke(t.Context(), p.call(abi.AppStop)); err != nil {
		t.Fatal(err)
	}
	if e := p.entries(t, 3)[2]; e.Traceparent != "" || e.Parent != "" {
		t.Errorf("without a trace: %+v", e)
	}
	text, err := os.ReadFile(journal.Path(p.dir))
	if all := p.dumped(t, abi.AppStop, "env") + p.dumped(t, abi.AppStop, "request") + strings.Split(string(text), "\n")[2]; err != nil || strings.Contains(strings.ToLower(all), "parent") {
		t.Errorf("without a trace: %s, %v", all, err)
	}
}

// A call that stays has two lines, and is one span.
func TestOnlyTheFirstLineOfACallHasItsTrace(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.Run: `ready $$; exec sleep 1000`, abi.Enter: `ready $$; exit 3`, abi.AppStart: `exit 4`,
	})
	ctx := pod.WithTrace(t.Context(), traceparent)
	sup, err := p.Run(ctx, p.call(abi.Run), lockOf(t, p.dir))
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Enter(ctx, p.call(abi.Enter), [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	<-q.Ended
	if err := p.Invoke(ctx, p.call(abi.AppStart)); err == nil {
		t.Error("no error")
	}
	if err := sup.Kill(); err != nil {
		t.Fatal(err)
	}
	<-sup.Done
	if err := sup.Notices.Close(); err != nil {
		t.Error(err)
	}
	traced := map[abi.Entrypoint]int{}
	for _, e := range p.entries(t, 5) {
		stays := e.Entrypoint != abi.AppStart
		if has := e.Traceparent != ""; has != (!stays || e.State == journal.Ready) || has != (e.Parent != "") {
			t.Errorf("%+v", e)
		} else if has {
			traced[e.Entrypoint]++
		}
	}
	if traced[abi.Run] != 1 || traced[abi.Enter] != 1 || traced[abi.AppStart] != 1 {
		t.Errorf("%v", traced)
	}
}

func TestACallOnTheSocketHasItsTraceInTheRequest(t *testing.T) {
	p := newAskedPod(t)
	calls := make(chan abi.Request, 1)
	p.answer(t, func(_ context.Context, a *serve.Asked) error {
		calls <- *a.Request
		return nil
	})
	if err := p.Invoke(pod.WithTrace(t.Context(), traceparent), p.call(abi.AppStart)); err != nil {
		t.Fatal(err)
	}
	e := p.entries(t, 1)[0]
	if r := wait.For(t, "the call", calls); !e.Served || e.Traceparent == "" || r.Traceparent != e.Traceparent || e.Parent != traceparent.Span() {
		t.Errorf("request %q, journal %+v", r.Traceparent, e)
	}
}
