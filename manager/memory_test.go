package manager

import (
	"os"
	"runtime"
	"testing"
)

func TestAServerUsesOneProcessorAndItsChildrenInheritTheNumberOfContainerd(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	limitMemory()
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors", n)
	}
	if v := os.Getenv("GOMAXPROCS"); v != "2" {
		t.Errorf("children inherit %q", v)
	}
}
