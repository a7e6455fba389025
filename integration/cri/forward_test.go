package cri

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// lockedBuffer is written by a stream while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func forwardPort(t *testing.T, c *column) { forward(t, c.pod(t), 8080) }

func forwardHostPort(t *testing.T, c *column) {
	forward(t, c.pod(t, withNamespaces(&runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}), func(config *runtimeapi.PodSandboxConfig) { config.Hostname = "" }), c.port(81))
}

// forward fetches the page of a web server in the pod through a forwarded port.
func forward(t *testing.T, p *pod, port int) {
	t.Helper()
	web := p.run("web", serve(port))
	answer, err := p.runtime.PortForward(testContext(t), &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{int32(port)}})
	if err != nil {
		t.Fatalf("port-forward: %v", err)
	}
	u, err := url.Parse(answer.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&restclient.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	var log lockedBuffer
	forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u),
		[]string{fmt.Sprintf("0:%d", port)}, stop, ready, &log, &log)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() {
		close(stop)
		<-ended
	}()
	select {
	case <-ready:
	case <-time.After(wait.Patience):
		t.Fatalf("nothing is forwarded: %s", log.String())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	// The stream ends if no server listens yet, so start the server first.
	wait.Observe(t, "it listens", func() (bool, string) {
		code, _, errout := web.execCode("wget", "-qO-", fmt.Sprintf("http://127.0.0.1:%d/", port))
		return code == 0, errout
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait.Patience}
	for range 3 {
		r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
		if err != nil {
			t.Fatalf("%v; %s", err, log.String())
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(b) != "hello\n" {
			t.Errorf("%q, %v", b, err)
		}
	}
}
