package early

import (
	"slices"
	"testing"
)

func TestAServerHasOneProcessor(t *testing.T) {
	got := serverEnv([]string{"A=b", "GOMAXPROCS=2", "C=d"})
	if want := []string{"A=b", "C=d", "GOMAXPROCS=1"}; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}
