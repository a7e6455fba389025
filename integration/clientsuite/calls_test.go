package main

import (
	"bytes"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func span(kind tracev1.Span_SpanKind, name, code string) *tracev1.Span {
	return &tracev1.Span{Kind: kind, Name: name, Attributes: []*commonv1.KeyValue{
		{Key: "rpc.method", Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: name}}},
		{Key: "rpc.response.status_code", Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: code}}},
	}}
}

func TestCallsOfTheTasksServiceAreCollected(t *testing.T) {
	const server = tracev1.Span_SPAN_KIND_SERVER
	body, err := proto.Marshal(&collectorv1.ExportTraceServiceRequest{ResourceSpans: []*tracev1.ResourceSpans{{
		ScopeSpans: []*tracev1.ScopeSpans{{Spans: []*tracev1.Span{
			span(server, "containerd.services.tasks.v1.Tasks/Kill", "OK"),
			span(server, "containerd.services.tasks.v1.Tasks/Kill", "NOT_FOUND"),
			span(server, "containerd.services.images.v1.Images/Get", "OK"),
			span(tracev1.Span_SPAN_KIND_CLIENT, "containerd.services.tasks.v1.Tasks/Start", "OK"),
		}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := collectCalls()
	if err != nil {
		t.Fatal(err)
	}
	_, endpoint, _ := strings.Cut(c.environment()[0], "=")
	for range 2 {
		resp, err := http.Post(endpoint+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	file := filepath.Join(t.TempDir(), "calls")
	if err := c.close(file); err != nil {
		t.Fatal(err)
	}
	got, err := readCalls(file)
	if want := (calls{"Kill": {"OK": 2, "NOT_FOUND": 2}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
