// Package metrics counts what pods do, from their files alone, and writes Prometheus' text
// format. Shims do nothing for it.
//
//	pods' files, records of failed starts ──► Collector.Collect ──► Write: text
//	                                              ▲  │
//	                                              └──┴─ the file with the counters
//
// It also makes spans of the calls of clients that trace, and sends them in OTLP's JSON encoding:
// docs/adr/0030.
//
// Counters go on when pods end, and when this program ends: a file has them, and for each pod
// how far its journal was counted. Calls of a pod that has begun and ended between two
// collections are not counted.
//
// The values of labels are bounded, whatever pods and clients are called.
package metrics
