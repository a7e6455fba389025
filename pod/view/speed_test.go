package view

import (
	"fmt"
	"testing"
)

// BenchmarkTwoHundredPods reads the pods of a busy node.
func BenchmarkTwoHundredPods(b *testing.B) {
	w := newWorld(b)
	sup := w.process()
	for i := range 200 {
		d := w.pod(fmt.Sprint("pod", i))
		for j := range 2 {
			a := w.app(d, fmt.Sprintf("c%d-%d", i, j))
			w.has(a, sup)
		}
	}
	for b.Loop() {
		if pods, err := w.node.Pods(); err != nil || len(pods) != 200 {
			b.Fatal(len(pods), err)
		}
	}
}
