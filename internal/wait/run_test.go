package wait

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// The test calls itself as nohup would.
func TestChildrenDoNotIgnoreWhatTheTestsWereToIgnore(t *testing.T) {
	if os.Getenv("TEST_IGNORES") == "" {
		again := exec.Command("sh", "-c", `trap "" HUP INT; exec "$0" -test.run '^TestChildrenDoNotIgnore'`, os.Args[0])
		again.Env = append(os.Environ(), "TEST_IGNORES=yes")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for _, s := range []string{"HUP", "INT"} {
		child := exec.Command("sh", "-c", "kill -"+s+" $$")
		if err := child.Run(); err == nil || child.ProcessState.Exited() {
			t.Errorf("a child outlives SIG%s", s)
		}
	}
}

func TestAGoroutineThatIsLeftIsSeen(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt) // starts one that counts for nothing
	signal.Stop(c)
	seen := func(name string) bool { return strings.Contains(strings.Join(goroutines(), "\n"), name) }
	stop := make(chan struct{})
	go func() { <-stop }()
	Until(t, "it is seen", func() bool { return seen("TestAGoroutineThatIsLeftIsSeen.func2") })
	if seen("os/signal.loop") {
		t.Errorf("the goroutine of os/signal counts:\n%s", strings.Join(goroutines(), "\n\n"))
	}
	Blocked(t, "wait.TestAGoroutineThatIsLeftIsSeen.func2", 1)
	close(stop)
	Until(t, "it is seen no more", func() bool { return !seen("TestAGoroutineThatIsLeftIsSeen.func2") })
}
