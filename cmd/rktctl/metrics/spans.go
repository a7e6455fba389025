package metrics

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// Limits of spans.
const (
	maxSpans   = 2048 // that wait for the target; the oldest is dropped
	batch      = 512  // spans in a message
	maxText    = 1024 // bytes of a text in a span
	sendLimit  = 10 * time.Second
	maxReceipt = 64 << 10 // bytes that are read of an answer
)

// span is a span in OTLP's JSON encoding: ids are hexadecimal, and 64-bit numbers are texts.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	Parent     string      `json:"parentSpanId"`
	Flags      int         `json:"flags"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes"`
	Status     status      `json:"status,omitzero"`
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value has one of its fields.
type value struct {
	String string `json:"stringValue,omitempty"`
	Int    string `json:"intValue,omitempty"`
}

type status struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code,omitempty"`
}

// Values of OTLP.
const (
	kindInternal = 1
	statusError  = 2
	remoteParent = 0x300 // flags: it is known whether the parent is of another process, and it is
	sampledTrace = 0x001
)

// message is an ExportTraceServiceRequest.
type message struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

type scope struct {
	Name string `json:"name"`
}

// spanOf returns the span of a journal's entry, and reports whether it has one that is recorded.
func (t *tail) spanOf(e *journal.Entry) (span, bool) {
	trace, ok := abi.ParseTraceparent(string(e.Traceparent))
	if !ok || !trace.Sampled() || !abi.IsSpan(e.Parent) || e.Time.Unix() <= 0 || e.Millis < 0 {
		return span{}, false
	}
	s := span{
		TraceID: trace.Trace(), SpanID: trace.Span(), Parent: e.Parent, Flags: remoteParent | sampledTrace,
		Name: "stage1 " + entrypointOf(e), Kind: kindInternal,
		Start: nanoseconds(e.Time), End: nanoseconds(e.Time.Add(time.Duration(e.Millis * float64(time.Millisecond)))),
	}
	for _, a := range []struct{ key, text string }{
		{"rkt.namespace", t.pod.Namespace}, {"rkt.pod", t.pod.UUID}, {"rkt.app", cmp.Or(t.ids[e.App], e.App)}, {"rkt.exec", e.Exec},
		{"rkt.stage1", t.pod.Stage1.Name}, {"rkt.entrypoint", entrypointOf(e)},
	} {
		s.Attributes = append(s.Attributes, texts(a.key, a.text)...)
	}
	s.Attributes = append(s.Attributes, attribute{"rkt.exit_code", value{Int: strconv.Itoa(e.Code)}})
	if e.Code != 0 {
		s.Status = status{Code: statusError, Message: short(e.Error)}
	}
	return s, true
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// texts returns an attribute with a text, or none if the text is empty.
func texts(key, text string) []attribute {
	if text == "" {
		return nil
	}
	return []attribute{{key, value{String: short(text)}}}
}

func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// keepSpan puts a span to those that wait.
func (s *state) keepSpan(x span) {
	s.Spans = append(s.Spans, x)
	if more := len(s.Spans) - maxSpans; more > 0 {
		s.Spans = slices.Delete(s.Spans, 0, more)
		s.add("rkt_spans_dropped_total", float64(more))
	}
}

// Exporter sends spans to a collector of OpenTelemetry by HTTP, or appends them to a file.
type Exporter struct {
	url, path string
	resource  resource
	client    *http.Client
}

// NewExporter returns an exporter to the URL of a collector, or else to the path of a file.
func NewExporter(target string) (*Exporter, error) {
	e := &Exporter{path: target}
	if strings.Contains(target, "://") {
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("spans go to http://HOST:PORT/PATH, https://HOST:PORT/PATH or a file, and not to %q", target)
		}
		e.url, e.path = target, ""
		e.client = &http.Client{
			Timeout:       sendLimit,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	e.resource.Attributes = texts("service.name", "containerd-shim-rkt-v1")
	if host, err := os.Hostname(); err == nil {
		e.resource.Attributes = append(e.resource.Attributes, texts("host.name", host)...)
	}
	return e, nil
}

// Close closes idle connections.
func (e *Exporter) Close() {
	if e.client != nil {
		e.client.CloseIdleConnections()
	}
}

// SendSpans sends the spans that wait. Spans that the target refuses are dropped; after any other
// error they go on waiting. When ctx is done, it waits for the answer to a message that is on its
// way, at most sendLimit, and sends no other. If the process is killed between the target's answer and the writing
// of the counters, it sends the same spans again, with the same ids.
func (c *Collector) SendSpans(ctx context.Context) error {
	for len(c.state.Spans) > 0 && ctx.Err() == nil {
		n := min(len(c.state.Spans), batch)
		lost, err := c.spans.send(context.WithoutCancel(ctx), c.state.Spans[:n])
		if err != nil && lost == 0 {
			return fmt.Errorf("%d spans wait: %w", len(c.state.Spans), err)
		}
		c.state.Spans = slices.Delete(c.state.Spans, 0, n)
		c.state.add("rkt_spans_sent_total", float64(n-lost))
		if lost > 0 {
			c.state.add("rkt_spans_dropped_total", float64(lost))
			err = fmt.Errorf("%d spans are dropped: %w", lost, err)
		}
		if err := errors.Join(err, c.state.write(c.path)); err != nil {
			return err
		}
	}
	return nil
}

// send sends spans and returns how many of them the target does not take and never will. An error
// without such spans means that the target has none of them.
func (e *Exporter) send(ctx context.Context, spans []span) (lost int, err error) {
	text, err := json.Marshal(message{[]resourceSpans{{e.resource, []scopeSpans{{scope{"rktctl"}, spans}}}}})
	if err != nil {
		return len(spans), err
	}
	if e.client == nil {
		return 0, e.append(append(text, '\n'))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxReceipt)) // its status counts
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return rejected(answer, len(spans))
	case slices.Contains([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, code):
		return 0, fmt.Errorf("%s answers %s", e.url, resp.Status)
	}
	return len(spans), fmt.Errorf("%s answers %s: %.200q", e.url, resp.Status, answer)
}

// rejected returns how many of n spans a collector has not taken, by its answer.
func rejected(answer []byte, n int) (int, error) {
	var a struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"` // a text or a number
			ErrorMessage  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return 0, nil // an answer in another encoding
	}
	lost, _ := strconv.Atoi(strings.Trim(string(a.PartialSuccess.RejectedSpans), `"`))
	if lost <= 0 {
		return 0, nil
	}
	return min(lost, n), fmt.Errorf("the collector rejects them: %.200q", a.PartialSuccess.ErrorMessage)
}

// append adds a line to the file as a whole, or not at all.
func (e *Exporter) append(text []byte) error {
	f, err := os.OpenFile(e.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		if st.Mode().IsRegular() {
			err = errors.Join(err, f.Truncate(st.Size()))
		}
		return err
	}
	return nil
}
