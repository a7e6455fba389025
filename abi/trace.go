package abi

import (
	"fmt"
	"strings"
)

// Traceparent is a trace context of W3C's Trace Context, version 00:
//
//	00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//
// Its parts are the version, the trace, a span of that trace, and flags. The empty string means
// that there is no trace context.
type Traceparent string

// Lengths of a Traceparent's parts and where they begin.
const (
	traceAt, traceLen = 3, 32
	spanAt, spanLen   = traceAt + traceLen + 1, 16
	flagsAt           = spanAt + spanLen + 1
	traceparentLen    = flagsAt + 2
)

// ParseTraceparent returns a text as Traceparent, and reports whether it is one. Texts of other
// versions are none.
func ParseTraceparent(text string) (Traceparent, bool) {
	if len(text) != traceparentLen || text[:traceAt] != "00-" || text[spanAt-1] != '-' || text[flagsAt-1] != '-' {
		return "", false
	}
	t := Traceparent(text)
	return t, identifies(t.Trace()) && identifies(t.Span()) && hexadecimal(text[flagsAt:])
}

// IsSpan reports whether a text is the id of a span.
func IsSpan(text string) bool { return len(text) == spanLen && identifies(text) }

// identifies reports whether a text is hexadecimal and not zero.
func identifies(text string) bool { return hexadecimal(text) && strings.Trim(text, "0") != "" }

// hexadecimal reports whether a text has only digits and the letters a to f.
func hexadecimal(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }

// Trace returns the id of the trace: 32 hexadecimal digits.
func (t Traceparent) Trace() string { return string(t[traceAt : traceAt+traceLen]) }

// Span returns the id of the span: 16 hexadecimal digits.
func (t Traceparent) Span() string { return string(t[spanAt : spanAt+spanLen]) }

// Sampled reports whether the spans of the trace are recorded.
func (t Traceparent) Sampled() bool { return strings.IndexByte("13579bdf", t[traceparentLen-1]) >= 0 }

// With returns the trace context for the children of another span of the trace. The span must
// not be 0.
func (t Traceparent) With(span uint64) Traceparent {
	return t[:spanAt] + Traceparent(fmt.Sprintf("%016x", span)) + t[spanAt+spanLen:]
}
