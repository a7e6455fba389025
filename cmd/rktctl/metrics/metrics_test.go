package metrics

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// bench is a data directory with its collector.
type bench struct {
	t     *testing.T
	data  string
	state string
	store *disk.Store
	c     *Collector
	spans *Exporter
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, data: filepath.Join(t.TempDir(), "rkt")}
	b.state = filepath.Join(b.data, "metrics/counters.json")
	var err error
	if b.store, err = disk.OpenStore(b.data); err != nil {
		t.Fatal(err)
	}
	b.open()
	return b
}

// open opens the collector, as a process does that is started again.
func (b *bench) open() {
	b.t.Helper()
	if b.c != nil {
		_ = b.c.Close()
	}
	var err error
	if b.c, err = New(b.data, b.state, true, b.spans); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = b.c.Close() })
}

func (b *bench) pod(stage1 string) *disk.Dir {
	b.t.Helper()
	d, err := b.store.Create(disk.Key{Namespace: "ns", Sandbox: "web"}, disk.Stage1Record{Name: stage1}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = d.Remove(context.Background()) })
	return d
}

func (b *bench) calls(d *disk.Dir, entries ...journal.Entry) {
	b.t.Helper()
	for _, e := range entries {
		if err := journal.Append(d.Path(), e); err != nil {
			b.t.Fatal(err)
		}
	}
}

// collect collects and returns the text.
func (b *bench) collect() string {
	b.t.Helper()
	if err := b.c.Collect(); err != nil {
		b.t.Fatal(err)
	}
	var text bytes.Buffer
	if err := b.c.Write(&text); err != nil {
		b.t.Fatal(err)
	}
	return text.String()
}

func (b *bench) want(text string, lines ...string) {
	b.t.Helper()
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			b.t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

func TestCallsAreCountedOnceAndGoOnAfterPodsAndProcesses(t *testing.T) {
	b := newBench(t)
	d := b.pod("native")
	b.calls(d,
		journal.Entry{Entrypoint: "run", State: journal.Ready, Millis: 3},
		journal.Entry{Entrypoint: "app/add", Millis: 20},
		journal.Entry{Entrypoint: "app/start", Millis: 1, Code: 5},
		journal.Entry{App: "a", Unknown: []string{"/x", "/y"}},
		journal.Entry{Entrypoint: "no/such", Code: 137},
	)
	const add = `rkt_entrypoint_seconds_count{entrypoint="app/add",stage1="native"} `
	lines := []string{
		`rkt_pods{stage1="native",state="preparing"} 1`, `rkt_pods_seen_total{stage1="native"} 1`, add + "1",
		`rkt_entrypoint_seconds_bucket{entrypoint="app/add",le="0.01",stage1="native"} 0`,
		`rkt_entrypoint_seconds_bucket{entrypoint="app/add",le="0.025",stage1="native"} 1`,
		`rkt_entrypoint_seconds_bucket{entrypoint="app/add",le="+Inf",stage1="native"} 1`,
		`rkt_entrypoint_seconds_sum{entrypoint="app/add",stage1="native"} 0.02`,
		`rkt_entrypoint_failures_total{code="5",entrypoint="app/start",stage1="native"} 1`,
		`rkt_entrypoint_failures_total{code="signal",entrypoint="other",stage1="native"} 1`,
		`rkt_unknown_fields_total{stage1="native"} 2`,
		`rkt_processes{kind="shim"} 1`,
	}
	b.want(b.collect(), lines...)
	b.want(b.collect(), lines...) // nothing is counted twice
	b.open()
	b.want(b.collect(), lines...)
	b.calls(d, journal.Entry{Entrypoint: "app/add", Millis: 20})
	if err := appendText(filepath.Join(d.Path(), journal.File), `{"entrypoint":"app/add","half`); err != nil {
		t.Fatal(err)
	}
	b.want(b.collect(), add+"2")
	if err := appendText(filepath.Join(d.Path(), journal.File), `":1}`+"\n"); err != nil {
		t.Fatal(err)
	}
	b.want(b.collect(), add+"3")
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := b.collect()
	b.want(text, add+"3", `rkt_pods_seen_total{stage1="native"} 1`)
	if strings.Contains(text, "rkt_pods{") {
		t.Errorf("a pod that is gone: %s", text)
	}
}

func appendText(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func TestAJournalIsCountedOverItsRotation(t *testing.T) {
	b := newBench(t)
	d := b.pod("native")
	entry := journal.Entry{Entrypoint: "enter", State: journal.Ready, Argv: []string{strings.Repeat("x", 200)}}
	total := 0
	for range 5 {
		for range 700 { // so that the journal is rotated in between, once at most
			b.calls(d, entry)
			total++
		}
		b.want(b.collect(), fmt.Sprintf(`rkt_entrypoint_seconds_count{entrypoint="enter",stage1="native"} %d`, total))
	}
	if _, err := os.Stat(filepath.Join(d.Path(), journal.Old)); err != nil {
		t.Errorf("it was not rotated: %v", err)
	}
}

func TestFailedStartsAreCountedByStepAndField(t *testing.T) {
	b := newBench(t)
	fail := func(id, text string) {
		t.Helper()
		err := disk.KeepFailure(b.data, disk.FailedStart{
			Step: disk.StepCreate, Error: text, Stage1: &disk.Stage1Record{Name: "fly"},
			Starts: []disk.Start{{Time: time.Now(), ID: id}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const refused = "container %s: config.json asks for %s, which stage1 fly does not support"
	fail("a", fmt.Sprintf(refused, "a", "/linux/seccomp/flags"))
	fail("b", fmt.Sprintf(refused, "b", "/linux/seccomp/flags"))
	b.want(b.collect(), `rkt_failed_starts_total{stage1="fly",step="create"} 2`, `rkt_refused_fields_total{field="/linux/seccomp",stage1="fly"} 2`)
	fail("c", fmt.Sprintf(refused, "c", "/linux/seccomp/flags"))
	fail("d", fmt.Sprintf(refused, "d", "/a-tenants-own\x1b/x"))
	fail("e", "no room")
	b.open()
	text := b.collect()
	b.want(text, `rkt_failed_starts_total{stage1="fly",step="create"} 5`, `rkt_refused_fields_total{field="/linux/seccomp",stage1="fly"} 3`, `rkt_refused_fields_total{field="other",stage1="fly"} 1`)
	if strings.Contains(text, "tenant") {
		t.Errorf("a label of a client's choice: %s", text)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	b := newBench(t)
	for i := range maxStage1s + 9 {
		b.pod(fmt.Sprintf("s%d", i))
	}
	b.pod(strings.Repeat("x", 1000))
	values := map[string]bool{}
	for _, m := range regexp.MustCompile(`stage1="([^"]*)"`).FindAllStringSubmatch(b.collect(), -1) {
		values[m[1]] = true
	}
	if len(values) != maxStage1s+1 || !values[other] {
		t.Errorf("%d values", len(values))
	}
}

// sample is a line of the text format.
var sample = regexp.MustCompile(`^[a-z_]+(\{[a-z0-9]+="[^"\n]*"(,[a-z0-9]+="[^"\n]*")*\})? [0-9.e+-]+$`)

func TestTheTextHasTheFormOfPrometheus(t *testing.T) {
	b := newBench(t)
	b.calls(b.pod("a\"b\\c\nd"), journal.Entry{Entrypoint: "app/add"})
	text := b.collect()
	lines := bufio.NewScanner(strings.NewReader(strings.ReplaceAll(text, `\"`, "")))
	for lines.Scan() {
		if l := lines.Text(); !strings.HasPrefix(l, "# HELP ") && !strings.HasPrefix(l, "# TYPE ") && !sample.MatchString(l) {
			t.Errorf("%q", l)
		}
	}
	if !strings.Contains(text, `stage1="a\"b\\c\nd"`) {
		t.Error(text)
	}
	for _, f := range families {
		if !strings.Contains(text, "# TYPE "+f.name+" "+f.kind+"\n") {
			t.Errorf("no %s", f.name)
		}
	}
}

func TestTheDashboardAndTheDocumentNameTheMetricsThatExist(t *testing.T) {
	names := map[string]bool{}
	for _, f := range families {
		names[f.name] = true
		if f.kind == "histogram" {
			names[f.name+"_bucket"], names[f.name+"_sum"], names[f.name+"_count"] = true, true, true
		}
	}
	for _, file := range []string{"contrib/grafana/rkt-pods.json", "docs/metrics.md"} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON", file)
		}
		found := regexp.MustCompile(`\brkt_[a-z_]+`).FindAllString(string(text), -1)
		for _, name := range found {
			if !names[name] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
		if len(found) < len(families)-2 {
			t.Errorf("%s names only %q", file, found)
		}
	}
}

func TestTwoHundredPodsAreCollectedInASecond(t *testing.T) {
	b := newBench(t)
	var entries []journal.Entry
	for range 20 {
		entries = append(entries, journal.Entry{Entrypoint: "enter", App: "a", Argv: []string{"/enter"}, Millis: 1})
	}
	for range 200 {
		b.calls(b.pod("native"), entries...)
	}
	for range 2 { // with entries to count, and without
		began := time.Now()
		text := b.collect()
		if took := time.Since(began); took > time.Second*wait.Busyness() {
			t.Errorf("it took %s", took)
		}
		b.want(text, `rkt_pods{stage1="native",state="preparing"} 200`)
	}
}

func TestOnlyOneProcessKeepsTheCounters(t *testing.T) {
	b := newBench(t)
	if _, err := New(b.data, b.state, true, b.spans); err == nil || !strings.Contains(err.Error(), "another process keeps the counters") {
		t.Error(err)
	}
	b.collect()
	shown, err := New(b.data, b.state, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(b.state)
	if err != nil {
		t.Fatal(err)
	}
	b.pod("native")
	if err := shown.Collect(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(b.state); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a reader has written the counters: %v", err)
	}
	if st, err := os.Stat(b.state); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestAFileOfOtherCountersIsAnError(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"[]", `{"version":2}`, `{"counters":null}`} {
		path := filepath.Join(t.TempDir(), "counters")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(b.data, path, false, nil); err == nil || !strings.Contains(err.Error(), "remove it to begin at zero") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCountersThatWereLostWithThePowerBeginAtZero(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"", "\x00\x00", `{"version":1,"cou`} {
		path := filepath.Join(t.TempDir(), "counters")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := New(b.data, path, true, nil)
		if err == nil {
			err = errors.Join(c.Collect(), c.Close())
		}
		if after, readErr := os.ReadFile(path); err != nil || !strings.Contains(string(after), `"version":1`) {
			t.Errorf("%q: %v; %s, %v", text, err, after, readErr)
		}
	}
}

func TestTheServerAnswersOnlyGETOfMetrics(t *testing.T) {
	b := newBench(t)
	b.collect()
	var s Server
	if err := s.Take(b.c); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}
	client := &http.Client{Transport: transport, Timeout: wait.Patience}
	for request, want := range map[string]int{"GET /metrics": 200, "HEAD /metrics": 200, "POST /metrics": 405, "GET /": 404} {
		method, url, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(ctx, method, "http://x"+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || request == "GET /metrics" && !strings.Contains(string(text), "# TYPE rkt_pods gauge") {
			t.Errorf("%s: %d %s", request, resp.StatusCode, text)
		}
	}
	var open []net.Conn
	for range connections + 4 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	refused := open[len(open)-1]
	_ = refused.SetReadDeadline(time.Now().Add(wait.Patience))
	if _, err := refused.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection too many was kept: %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	transport.CloseIdleConnections()
}
