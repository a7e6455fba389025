package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// ask sends a call on the pod's socket, or the beginning of it.
func (p *pod) ask(e abi.Entrypoint, r abi.Request, whole bool) *serve.Conn {
	p.t.Helper()
	r.Version, r.Entrypoint = abi.Version, e
	conn, err := serve.Dial(filepath.Join(p.dir, "stage1/rootfs"), "rkt/native.sock")
	must(p.t, err)
	text, err := json.Marshal(r)
	must(p.t, err)
	if !whole {
		text = append(text, make([]byte, 1<<20)...) // more than the socket has room for
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(p.t, err)
	defer null.Close()
	fd := int(null.Fd())
	_, err = conn.Begin(serve.Call, text, fd, fd, fd)
	must(p.t, err)
	return conn
}

// hookThatWaits is a hook that writes its pid to a file of the pod's, and does not end.
func (p *pod) hookThatWaits() (hooks []specs.Hook, pid func() int) {
	marker := filepath.Join(p.dir, "hook")
	hooks = []specs.Hook{{
		Path: busybox, Args: []string{"sh", "-c", "echo $$ >" + marker + "; busybox sleep 1000; true"}, Env: []string{"PATH=/bin"},
	}}
	return hooks, func() int {
		var text string
		wait.Until(p.t, "the hook runs", func() bool {
			b, _ := os.ReadFile(marker)
			text = string(b)
			return strings.HasSuffix(text, "\n")
		})
		n, err := strconv.Atoi(strings.TrimSpace(text))
		must(p.t, err)
		return n
	}
}

// If the connection ends, stage 0 may have died.
func TestACallerOnTheSocketThatHangsUpHasItsCallUndone(t *testing.T) {
	t.Run("with half a request", func(t *testing.T) {
		p := startPod(t)
		r := p.request("web", "true")
		must(t, p.ask(abi.AppAdd, r, false).Close())
		p.empty()
		p.add(r) // the name is free
	})
	t.Run("in app/add", func(t *testing.T) {
		p := startPod(t)
		r := p.request("web", "true")
		hooks, pid := p.hookThatWaits()
		respec(t, &r, func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: hooks} })
		conn := p.ask(abi.AppAdd, r, true)
		hook := pid()
		must(t, conn.Close())
		p.expect(0, abi.AppRm, "web") // waits for the undoing
		p.empty()
		if alive(hook) {
			t.Errorf("the hook, process %d, lives", hook)
		}
	})
	t.Run("in enter", func(t *testing.T) {
		p := startPod(t)
		p.hostile("web", "true", nil)
		raw, err := json.Marshal(specs.Process{Args: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}, Cwd: "/"})
		must(t, err)
		for n := range 200 {
			conn := p.ask(abi.Enter, abi.Request{App: "web", Exec: "e", Container: "ctr-web", Process: raw}, true)
			time.Sleep(time.Duration(n) * 20 * time.Microsecond) // an exec takes some milliseconds
			word := serve.Word("")
			conn.HangUp()
			for err == nil && word != serve.Ready && word != serve.Exit {
				word, _, err = conn.Receive(serve.MaxAnswer)
			}
			must(t, conn.Close())
			if word == serve.Ready { // it was told of
				p.signal(0, "web", "e", syscall.SIGKILL)
				p.exited("web", "e", 137, 9)
			}
			err = nil
			wait.Until(t, "only the app is left", func() bool { return len(children(t, p.ready.PID)) == 1 })
		}
	})
	t.Run("in app/start", func(t *testing.T) {
		p := startPod(t)
		r := p.request("web", "sleep", "1000")
		hooks, pid := p.hookThatWaits()
		respec(t, &r, func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststart: hooks} })
		app := p.add(r)
		conn := p.ask(abi.AppStart, abi.Request{App: "web"}, true)
		hook := pid()
		conn.HangUp()
		p.exited("web", "", 137, 9)
		for word := serve.Word(""); word != serve.Exit; {
			var body []byte
			var err error
			word, body, err = conn.Receive(serve.MaxAnswer)
			must(t, err)
			if word == serve.Exit && string(body) == "0" {
				t.Error("app/start has succeeded")
			}
		}
		must(t, conn.Close())
		if alive(hook) || alive(app) {
			t.Error(fmt.Sprint("the hook or the app lives: ", hook, app))
		}
	})
}
