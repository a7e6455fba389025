package fork

import (
	"math"
	"testing"
)

// The report of a child decides which process the parent kills later.
func FuzzAReportIsAFailureOrAPid(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{byte(stepJoin), 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		p := &Process{Joins: []Join{{What: "a namespace"}}}
		r, err := p.parse(packet)
		switch {
		case err != nil && (r != nil || err.Error() == ""):
			t.Errorf("report %+v and error %q", r, err)
		case err == nil && (r.step == executing || r.step == terminal):
		case err == nil && (r.step != cloned || r.value == 0 || r.value > math.MaxInt32):
			t.Errorf("report %+v", r)
		}
	})
}
