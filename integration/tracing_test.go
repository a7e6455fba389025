package integration

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// tracer is a collector of OpenTelemetry: for containerd, which sends protobuf, and for rktctl,
// which sends JSON.
type tracer struct {
	*httptest.Server
	mu     sync.Mutex
	daemon map[string]*tracev1.Span // of containerd, by trace and span
	ours   []*tracev1.Span
	wrong  []error // about messages that are not OTLP
}

func newTracer(t *testing.T) *tracer {
	t.Helper()
	c := &tracer{daemon: map[string]*tracev1.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, fmt.Sprint(r.URL, err), http.StatusNotFound)
			return
		}
		c.take(r.Header.Get("Content-Type"), body)
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *tracer) take(encoding string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if encoding == "application/json" {
		spans, err := decodeOTLP(body)
		if err != nil {
			c.wrong = append(c.wrong, err)
		}
		c.ours = append(c.ours, spans...)
		return
	}
	var m collectorv1.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &m); err != nil {
		c.wrong = append(c.wrong, err)
	}
	for _, s := range spansOf(&m) {
		c.daemon[key(s.GetTraceId(), s.GetSpanId())] = s
	}
}

func key(trace, span []byte) string { return fmt.Sprintf("%x/%x", trace, span) }

func spansOf(m *collectorv1.ExportTraceServiceRequest) (spans []*tracev1.Span) {
	for _, r := range m.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			spans = append(spans, s.GetSpans()...)
		}
	}
	return spans
}

// decodeOTLP decodes OTLP's JSON encoding: that of protobuf, except that ids are hexadecimal. A
// field that OTLP does not have is an error.
func decodeOTLP(text []byte) ([]*tracev1.Span, error) {
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	if err := ids(tree); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	encoded, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	var m collectorv1.ExportTraceServiceRequest
	if err := protojson.Unmarshal(encoded, &m); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return spansOf(&m), nil
}

// ids replaces hexadecimal ids by base64, as protobuf has them.
func ids(tree any) error {
	switch x := tree.(type) {
	case []any:
		for _, e := range x {
			if err := ids(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, e := range x {
			size := map[string]int{"traceId": 16, "spanId": 8, "parentSpanId": 8}[name]
			if size == 0 {
				if err := ids(e); err != nil {
					return err
				}
				continue
			}
			b, err := hex.DecodeString(fmt.Sprint(e))
			if err != nil || len(b) != size {
				return fmt.Errorf("%s is %v", name, e)
			}
			x[name] = base64.StdEncoding.EncodeToString(b)
		}
	}
	return nil
}

// attribute returns the text or number of an attribute of a span.
func attribute(s *tracev1.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if a.GetValue().GetStringValue() != "" {
				return a.GetValue().GetStringValue()
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

// story returns, for each of our spans, the entrypoint and the method of its parent, which is
// containerd's span of its call to the shim.
func (c *tracer) story() (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.ours {
		parent := c.daemon[key(s.GetTraceId(), s.GetParentSpanId())]
		found = append(found, strings.TrimPrefix(s.GetName(), "stage1 ")+" < "+parent.GetName())
	}
	return found
}

// await waits until there is one of our spans with each parent.
func (c *tracer) await(t *testing.T, want ...string) {
	t.Helper()
	wait.Observe(t, "the spans are there", func() (bool, string) {
		got := c.story()
		return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) }), strings.Join(got, "\n")
	})
}

// spans starts rktctl metrics, which sends spans to the collector until the returned function is
// called.
func (c *column) spans(t *testing.T, target string) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(c.context(t), filepath.Join(suite.shims, "rktctl"), "metrics", "--spans", target, "--every", "1s")
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	return func() {
		t.Helper()
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			t.Errorf("rktctl metrics: %v: %s", err, stderr.String())
		}
	}
}

func TestCallsOfEntrypointsAreSpansBelowContainerds(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		if c.release.old {
			t.Skip("containerd sends no trace context to shims before 2.0")
		}
		collector := newTracer(t)
		programs, err := c.release.find(c.context(t))
		if err != nil {
			t.Fatal(err)
		}
		opts := c.release.options("tracing", programs, c.daemon.Namespace()+"-tracing")
		opts.Tracing = collector.URL
		n := c.private(t, c.release, opts)
		t.Cleanup(func() { n.cleanUp(t) })
		const task = "containerd.task.v3.Task/"
		target := collector.URL + "/v1/traces"

		end := n.spans(t, target)
		id := n.start(t, nil, "testprog", "sleep", "1000")
		collector.await(t, "run < "+task+"Create", "app/add < "+task+"Create", "app/start < "+task+"Start")
		end()
		end = n.spans(t, target) // and goes on where the first has ended
		n.exec(t, []string{"--exec-id", "probe"}, id, "true").must(t)
		collector.await(t, "enter < "+task+"Start")

		file := filepath.Join(t.TempDir(), "spans.jsonl")
		n.rktctl(t, "metrics", "--once", "--spans", file, "--state", file+".state").must(t)
		inFile, err := decodeOTLP([]byte(strings.TrimSpace(read(t, file))))
		if err != nil || len(inFile) < 4 {
			t.Errorf("%d spans in the file, %v", len(inFile), err)
		}

		n.ctr(t, "task", "kill", "--signal", "SIGKILL", id).must(t)
		n.awaitStopped(t, id)
		n.deleteTask(t, id, 137)
		n.ctr(t, "container", "delete", id).must(t)
		collector.await(t, "stop < "+task+"Delete") // native's gc is not called
		end()
		n.rktctl(t, "metrics", "--once", "--spans", target).must(t)
		collector.check(t, id)
	})
}

// check checks all spans that the collector has got.
func (c *tracer) check(t *testing.T, id string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.wrong {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, s := range c.ours {
		k := key(s.GetTraceId(), s.GetSpanId())
		if seen[k] || c.daemon[k] != nil {
			t.Errorf("the span %s was sent twice", s)
		}
		seen[k] = true
		parent := c.daemon[key(s.GetTraceId(), s.GetParentSpanId())]
		if parent == nil {
			t.Errorf("%s: containerd has no such parent", s)
		}
		if s.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s begins before its parent, or ends before it begins", s)
		}
		entrypoint := attribute(s, "rkt.entrypoint")
		if strings.HasPrefix(entrypoint, "app/") && attribute(s, "rkt.app") != id || (entrypoint == "enter") != (attribute(s, "rkt.exec") == "probe") {
			t.Errorf("%s", s)
		}
		if attribute(s, "rkt.pod") == "" || attribute(s, "rkt.namespace") == "" || attribute(s, "rkt.stage1") != "native" || attribute(s, "rkt.exit_code") != "0" {
			t.Errorf("%s", s)
		}
	}
}
