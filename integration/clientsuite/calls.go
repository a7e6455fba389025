package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// calls counts the calls of clients to containerd's Tasks service, by method and by the code of
// the answer. Except for List, each method calls one or two methods of the shim.
type calls map[string]map[string]int

func (c calls) add(method, code string) {
	if c[method] == nil {
		c[method] = map[string]int{}
	}
	c[method][code]++
}

func readCalls(file string) (calls, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return calls{}, nil
	}
	if err != nil {
		return nil, err
	}
	var c calls
	return c, json.Unmarshal(b, &c)
}

// collector is an OpenTelemetry collector for containerd, which sends it a span for every call.
// Spans that containerd has not sent when it is killed are lost.
type collector struct {
	listener net.Listener
	server   *http.Server
	running  sync.WaitGroup

	mu    sync.Mutex
	calls calls
}

func collectCalls() (*collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{listener: listener, calls: calls{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.traces)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	c.running.Go(func() { _ = c.server.Serve(listener) }) // returns when the listener is closed
	return c, nil
}

func (c *collector) environment() []string {
	const schedule = "OTEL_BSP_SCHEDULE_DELAY=500" // milliseconds
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.listener.Addr().String(), schedule}
}

// close ends the collector and writes the counted calls to a file.
func (c *collector) close(file string) error {
	err := c.server.Close()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	b, marshal := json.Marshal(c.calls)
	return errors.Join(err, marshal, os.WriteFile(file, b, 0o644))
}

func (c *collector) traces(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var export collectorv1.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &export); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range export.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if method, code, ok := taskCall(span); ok {
					c.calls.add(method, code)
				}
			}
		}
	}
}

// taskCall returns the method and the code of a span, if the span is a client's call of
// containerd's Tasks service.
func taskCall(span *tracev1.Span) (method, code string, ok bool) {
	const service = "containerd.services.tasks.v1.Tasks/"
	method, ok = strings.CutPrefix(span.GetName(), service)
	if !ok || span.GetKind() != tracev1.Span_SPAN_KIND_SERVER {
		return "", "", false
	}
	for _, a := range span.GetAttributes() {
		if a.GetKey() == "rpc.response.status_code" {
			return method, a.GetValue().GetStringValue(), true
		}
	}
	return method, "unknown", true
}
