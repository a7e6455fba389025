package conformance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// callByHand runs rktctl stage1 call.
func callByHand(t *testing.T, code int, args ...string) *conformance.Made {
	t.Helper()
	v := run(t, "call", append([]string{"--json"}, args...)...)
	m := &conformance.Made{}
	if err := json.Unmarshal([]byte(v.stdout), m); err != nil || v.code != code {
		t.Fatalf("%q: code %d, %v: %s%s", args, v.code, err, v.stdout, v.stderr)
	}
	return m
}

func TestEveryEntrypointOfNativeCanBeCalledByHand(t *testing.T) {
	t.Parallel()
	image := bundledImage(t, "native")
	for _, e := range []abi.Entrypoint{abi.Run, abi.AppAdd, abi.AppStart, abi.AppSignal, abi.AppStop, abi.AppRm, abi.Enter, abi.Stop, abi.GC} {
		m := callByHand(t, 0, image, string(e))
		served := e != abi.Run && e != abi.GC
		if m.Entrypoint != e || m.Code != 0 || m.Left != "" || m.Served != served || (len(m.Argv) > 0) == served || !strings.Contains(m.Meaning, "has happened") {
			t.Errorf("%s: %+v", e, m)
		}
		var request abi.Request
		if err := json.Unmarshal(m.Request, &request); err != nil || request.Entrypoint != e || request.Version != abi.Version {
			t.Errorf("%s: request %s, %v", e, m.Request, err)
		}
	}
	m := callByHand(t, 0, "--execute", image, "enter", "--", "/bin/stage1-verify-app", "exit", "7")
	if m.Served || m.Exit == nil || *m.Exit != 7 || strings.Join(m.Before, " ") != "run app/add app/start" || !strings.Contains(string(m.Process), `"exit"`) {
		t.Errorf("%+v", m)
	}
}

func TestACallByHandThatFailsSaysWhatTheCodeMeansAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		code           int
		words, meaning string
	}{
		`fail "no such thing" 5`:        {5, "no such thing", "there is no such app or exec, or its process has ended"},
		`fail "not now" 6`:              {6, "not now", "the app or exec is in another state"},
		`fail "cannot" 7`:               {7, "cannot", "the request asks for something that this stage1 cannot do"},
		`fail "broken"`:                 {1, "broken", "failure"},
		`kill -9 $$`:                    {137, "signal 9", "failure: the entrypoint was killed by signal 9 (killed)"},
		`printf '\033[2Jx' >&3; exit 1`: {1, `\x1b[2Jx`, "failure"},
	} {
		m := callByHand(t, 1, broken{entry: "app_start", body: body}.image(t), "app/start")
		if m.Code != want.code || !strings.Contains(m.Words, want.words) || m.Meaning != want.meaning || m.Left != "" {
			t.Errorf("%s: %+v", body, m)
		}
	}
	// What comes before the call fails: this is no answer of the call.
	v := run(t, "call", broken{entry: "app_add", body: `fail "no room"`}.image(t), "enter")
	if v.code != 1 || v.stdout != "" || !strings.Contains(v.stderr, "before enter: ") || !strings.Contains(v.stderr, "no room") {
		t.Errorf("%+v", v)
	}
	if v := run(t, "call", bundledImage(t, "native"), "app/stats"); v.code != 1 || !strings.Contains(v.stderr, "has no app/stats; it has run") {
		t.Errorf("%+v", v)
	}
	for _, args := range [][]string{{"x", "no/such"}, {"x"}, {"x", "run", "--", "y"}, {"--signal", "99", "x", "run"}, {"--limits", "{", "x", "run"}} {
		if v := run(t, "call", args...); v.code != 2 {
			t.Errorf("%q: %+v", args, v)
		}
	}
}

func TestACallByHandTakesAConfigJSON(t *testing.T) {
	t.Parallel()
	dir := reachable(t)
	must(t, os.Mkdir(filepath.Join(dir, "root"), 0o755))
	text := `{"ociVersion":"1.0.2","root":{"path":"root"},"process":{"args":["/absent"],"cwd":"/","env":["MARK=here"]},"linux":{"namespaces":[{"type":"mount"},{"type":"pid"}]}}`
	file := filepath.Join(dir, "config.json")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	v := run(t, "call", "--config", file, bundledImage(t, "native"), "app/add")
	request, _, _ := strings.Cut(v.stdout, "\nanswer, after")
	if !strings.Contains(request, "MARK=here") || !strings.Contains(request, filepath.Join(dir, "root")) || !strings.HasPrefix(v.stdout, "# before: run\n# app/add, on its socket\n") {
		t.Errorf("%+v", v)
	}
}
