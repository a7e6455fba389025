package wait

import (
	"os"
	"os/signal"
	"strings"
	"testing"
)

func TestAGoroutineThatIsLeftIsSeen(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt) // starts one that counts for nothing
	signal.Stop(c)
	before := len(goroutines())
	stop := make(chan struct{})
	go func() { <-stop }()
	Until(t, "it is seen", func() bool {
		all := goroutines()
		return len(all) == before+1 && strings.Contains(strings.Join(all, ""), "TestAGoroutineThatIsLeftIsSeen.func1")
	})
	Blocked(t, "wait.TestAGoroutineThatIsLeftIsSeen.func1", 1)
	close(stop)
	Until(t, "it is seen no more", func() bool { return len(goroutines()) == before })
}
