package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

const (
	theirs = "00f067aa0ba902b7"
	trace  = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// traced returns an entry of a call whose span has a number.
func traced(n int) journal.Entry {
	return journal.Entry{
		Time: time.Unix(1700000000, 5), Millis: 1.5, Entrypoint: abi.AppAdd, App: "a",
		Traceparent: abi.Traceparent(fmt.Sprintf("00-%s-%016x-01", trace, n)), Parent: theirs,
	}
}

// spanIDs returns the ids of the spans in messages.
func spanIDs(t *testing.T, text []byte) (ids []string) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var m message
		err := d.Decode(&m)
		if err == io.EOF {
			return ids
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
			ids = append(ids, strings.TrimLeft(s.SpanID, "0"))
		}
	}
}

// collector is a collector of OpenTelemetry that gives the same answer each time.
type collector struct {
	code   int
	answer string
	got    [][]string // the ids in each message
	*httptest.Server
}

func newCollector(t *testing.T, b *bench) *collector {
	t.Helper()
	c := &collector{code: http.StatusOK, answer: `{"partialSuccess":{}}`}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v, %v", r.Method, r.URL, r.Header, err)
		}
		c.got = append(c.got, spanIDs(t, text))
		w.WriteHeader(c.code)
		_, _ = io.WriteString(w, c.answer)
	}))
	t.Cleanup(c.Close)
	b.exporter(c.URL + "/v1/traces")
	return c
}

// exporter opens the collector again, with an exporter.
func (b *bench) exporter(target string) {
	b.t.Helper()
	var err error
	if b.spans, err = NewExporter(target); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

// send collects and sends.
func (b *bench) send() error {
	b.t.Helper()
	b.collect()
	return b.c.SendSpans(b.t.Context())
}

// sends is send for a target that takes everything.
func (b *bench) sends() {
	b.t.Helper()
	if err := b.send(); err != nil {
		b.t.Error(err)
	}
}

// waiting makes spans wait, without calls.
func (b *bench) waiting(n int) {
	b.t.Helper()
	for i := range n {
		b.c.state.keepSpan(span{TraceID: trace, SpanID: fmt.Sprintf("%016x", i+1), Parent: theirs})
	}
}

func (c *collector) expect(t *testing.T, ids ...string) {
	t.Helper()
	if got := slices.Concat(c.got...); !slices.Equal(got, ids) {
		t.Errorf("the collector has got %q, want %q", got, ids)
	}
}

func TestEverySpanIsSentOnceOverRestartsAndFailures(t *testing.T) {
	b := newBench(t)
	c := newCollector(t, b)
	d := b.pod("native")
	b.calls(d, traced(1))
	b.sends()
	b.sends()
	b.open()
	b.sends()
	c.expect(t, "1")

	c.code, c.got = http.StatusServiceUnavailable, nil
	b.calls(d, traced(2))
	for range 2 {
		if err := b.send(); err == nil || !strings.Contains(err.Error(), "1 spans wait") {
			t.Error(err)
		}
	}
	b.want(b.collect(), "rkt_spans_waiting 1")
	b.open() // the spans wait in the file
	c.code, c.got = http.StatusOK, nil
	b.calls(d, traced(3))
	b.sends()
	b.sends()
	c.expect(t, "2", "3")

	c.Close()
	b.calls(d, traced(4))
	if err := b.send(); err == nil {
		t.Error("a collector that is gone has taken a span")
	}
	c = newCollector(t, b)
	b.sends()
	c.expect(t, "4")
	b.want(b.collect(), "rkt_spans_sent_total 4", "rkt_spans_waiting 0")
}

// The last calls of a pod are in its journal for the moment before the journal is removed.
func TestCallsThatEndAPodAreReadWhenItIsGone(t *testing.T) {
	b := newBench(t)
	c := newCollector(t, b)
	d := b.pod("native")
	b.calls(d, traced(1))
	b.sends()
	b.calls(d, traced(2), traced(3))
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sends()
	c.expect(t, "1", "2", "3")
	b.want(b.collect(), `rkt_entrypoint_seconds_count{entrypoint="app/add",stage1="native"} 3`)
	if len(b.c.tails) != 0 {
		t.Errorf("%d journals are open", len(b.c.tails))
	}
}

func TestSpansThatAreRefusedAreDropped(t *testing.T) {
	b := newBench(t)
	c := newCollector(t, b)
	d := b.pod("native")
	c.code, c.answer = http.StatusBadRequest, "no"
	b.calls(d, traced(1))
	if err := b.send(); err == nil || !strings.Contains(err.Error(), "400") {
		t.Error(err)
	}
	c.code, c.answer = http.StatusTemporaryRedirect, ""
	b.calls(d, traced(2))
	if err := b.send(); err == nil {
		t.Error("a redirection was followed")
	}
	c.code, c.answer = http.StatusOK, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}`
	b.calls(d, traced(3), traced(4))
	if err := b.send(); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Error(err)
	}
	c.answer = "\x00\x01 not JSON"
	b.calls(d, traced(5))
	b.sends()
	c.expect(t, "1", "2", "3", "4", "5")
	b.want(b.collect(), "rkt_spans_sent_total 2", "rkt_spans_dropped_total 3", "rkt_spans_waiting 0")
}

func TestTheNewestSpansWaitForACollector(t *testing.T) {
	b := newBench(t)
	c := newCollector(t, b)
	const more = 10
	b.waiting(maxSpans + more)
	b.sends()
	got := slices.Concat(c.got...)
	if len(got) != maxSpans || got[0] != fmt.Sprintf("%x", more+1) || got[maxSpans-1] != fmt.Sprintf("%x", maxSpans+more) || len(c.got) != maxSpans/batch {
		t.Errorf("%d spans in %d messages, from %s", len(got), len(c.got), got[0])
	}
	b.want(b.collect(), fmt.Sprintf("rkt_spans_dropped_total %d", more))
}

func TestOnlyRecordedTracesBecomeSpans(t *testing.T) {
	b := newBench(t)
	c := newCollector(t, b)
	unsampled, noParent, badParent, early, untraced, bad := traced(1), traced(2), traced(3), traced(4), traced(5), traced(6)
	unsampled.Traceparent = unsampled.Traceparent[:54] + "0"
	noParent.Parent, badParent.Parent = "", strings.Repeat("0", 16)
	early.Time = time.Time{}
	untraced.Traceparent = ""
	bad.Traceparent = "00-x"
	b.calls(b.pod("native"), unsampled, noParent, badParent, early, untraced, bad, traced(7))
	b.sends()
	c.expect(t, "7")
}

func TestSpansAreAppendedToAFile(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	b.exporter(file)
	d := b.pod("native")
	failed := traced(2)
	failed.Code, failed.Error, failed.Exec, failed.Entrypoint = 5, "no such \"app\"", "e1", "no/such"
	b.calls(d, traced(1))
	b.sends()
	b.calls(d, failed)
	b.sends()
	b.sends()
	text, err := os.ReadFile(file)
	if st, statErr := os.Stat(file); err != nil || statErr != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", err, statErr)
	}
	if ids := spanIDs(t, text); !slices.Equal(ids, []string{"1", "2"}) || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%s", text)
	}
	for _, want := range []string{
		`"traceId":"` + trace + `"`, `"parentSpanId":"` + theirs + `"`, `"startTimeUnixNano":"1700000000000000005"`, `"endTimeUnixNano":"1700000000001500005"`,
		`"name":"stage1 app/add"`, `{"key":"rkt.pod","value":{"stringValue":"` + d.UUID() + `"}}`, `{"key":"rkt.exit_code","value":{"intValue":"0"}}`,
		`{"key":"rkt.exec","value":{"stringValue":"e1"}}`, `{"key":"rkt.entrypoint","value":{"stringValue":"other"}}`,
		`"status":{"message":"no such \"app\"","code":2}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if err := os.Rename(file, file+".1"); err != nil { // as logrotate does
		t.Fatal(err)
	}
	b.calls(d, traced(3))
	b.sends()
	if text, err := os.ReadFile(file); err != nil || !slices.Equal(spanIDs(t, text), []string{"3"}) {
		t.Errorf("%s, %v", text, err)
	}
	if err := os.Mkdir(file+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	b.exporter(file + ".d")
	b.calls(d, traced(4))
	if err := b.send(); err == nil {
		t.Error("a directory has taken a span")
	}
	b.want(b.collect(), "rkt_spans_waiting 1")
}

func TestATargetOfSpansIsAURLOrAPath(t *testing.T) {
	for _, target := range []string{"grpc://127.0.0.1:4317", "http://", "http://a b/", "ftp://x/y"} {
		if _, err := NewExporter(target); err == nil {
			t.Errorf("%q", target)
		}
	}
}

// A program that is told to end while it sends must not send the same again.
func TestASpanThatIsOnItsWayIsNotGivenUp(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := newCollector(t, b)
	answer := c.Config.Handler
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		answer.ServeHTTP(w, r)
	})
	b.waiting(batch + 1)
	if err := b.c.SendSpans(ctx); err != nil || len(c.got) != 1 {
		t.Errorf("%d messages, %v", len(c.got), err)
	}
	b.open()
	b.sends()
	if len(c.got) != 2 || !slices.Equal(c.got[1], []string{fmt.Sprintf("%x", batch+1)}) {
		t.Errorf("%q", c.got)
	}
}
