package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// seen is what Follow has written.
type seen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *seen) await(t *testing.T, suffix string) {
	t.Helper()
	wait.Observe(t, fmt.Sprintf("%q was written", suffix), func() (bool, string) {
		text := s.String()
		return strings.HasSuffix(text, suffix), text[max(0, len(text)-100):]
	})
}

// follow begins to follow the log of an app.
func (p *pod) follow(name string) (*seen, chan error) {
	s, ended := &seen{}, make(chan error, 1)
	go func() { ended <- p.Follow(p.Context(), name, s) }()
	return s, ended
}

func TestTheLogOfAnAppIsFollowedUntilTheAppHasEnded(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		dir := t.TempDir()
		c := config("web", "echo begun; until [ -e /shared/go ]; do sleep 0.05; done; echo gone on; echo to stderr >&2; echo -n the end; exit 3")
		c.Volumes = []local.Volume{{Source: dir, Target: "/shared", ReadOnly: true}}
		if err := p.Pod.Add(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		early, earlyEnded := p.follow("web") // before the start
		p.start("web")
		early.await(t, "begun\n")
		late, lateEnded := p.follow("web")
		late.await(t, "begun\n")
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := p.Follow(stopped, "web", &seen{}); !errors.Is(err, context.Canceled) {
			t.Errorf("an end by the caller: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for s, ended := range map[*seen]chan error{early: earlyEnded, late: lateEnded} {
			if err := wait.For(t, "the end of the app", ended); err != nil {
				t.Error(err)
			}
			text := s.String() // the order of the two streams is not known
			if !strings.HasPrefix(text, "begun\n") || len(text) != len("begun\ngone on\nto stderr\nthe end") || !strings.Contains(text, "gone on\n") {
				t.Errorf("%q", text)
			}
		}
		again, ended := p.follow("web") // after its end
		if err := wait.For(t, "the end of a log that is complete", ended); err != nil || again.String() != early.String() && len(again.String()) != len(early.String()) {
			t.Errorf("%q, %v", again.String(), err)
		}
		if err := p.Pod.Delete(t.Context(), "web", 0); err != nil {
			t.Fatal(err)
		}
		if out, code := b.rktctl("app", "logs", p.UUID(), "--app=web", "--follow"); code != 0 || !strings.Contains(out, "the end") {
			t.Errorf("of a removed app: %d, %q", code, out)
		}
		if err := p.Follow(t.Context(), "none", &seen{}); !errdefs.IsNotFound(err) {
			t.Errorf("of an app that never was: %v", err)
		}
	})
}

// The app writes three times the bound of a log file, and waits until the reader has each part.
func TestNothingIsLostOfALogThatIsReplacedWhileItIsFollowed(t *testing.T) {
	const parts, lines = 4, 1_000_000
	b := newBox(t, "native")
	p := b.sandbox()
	dir := t.TempDir()
	c := config("web", fmt.Sprintf("for i in $(busybox seq 1 %d); do busybox seq %d; echo part $i; until [ -e /shared/$i ]; do sleep 0.05; done; done", parts, lines))
	c.Volumes = []local.Volume{{Source: dir, Target: "/shared", ReadOnly: true}}
	if err := p.Pod.Add(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p.start("web")
	s, ended := p.follow("web")
	for i := range parts {
		s.await(t, fmt.Sprintf("\npart %d\n", i+1))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i+1)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait.For(t, "the end of the app", ended); err != nil {
		t.Error(err)
	}
	if paths, err := p.Logs("web"); err != nil || len(paths) != local.LogFiles {
		t.Errorf("the log was not replaced: %q, %v", paths, err)
	}
	var want bytes.Buffer
	for i := range parts {
		for n := range lines {
			fmt.Fprintln(&want, n+1)
		}
		fmt.Fprintln(&want, "part", i+1)
	}
	if got := s.String(); got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
}

// Nobody writes the log of a pod whose server was killed.
func TestFollowingALogEndsWithTheServerOfThePod(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("web", "echo begun; exec sleep 1000")
	p.start("web")
	s, ended := p.follow("web")
	s.await(t, "begun\n")
	p.killServer()
	if err := wait.For(t, "the end of the server", ended); err == nil || !strings.Contains(err.Error(), "server is not running") {
		t.Errorf("%v", err)
	}
	again, ended := p.follow("web")
	if err := wait.For(t, "the end of the log", ended); err == nil || again.String() != "begun\n" {
		t.Errorf("%q, %v", again.String(), err)
	}
}
