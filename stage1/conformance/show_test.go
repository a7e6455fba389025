package conformance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/docs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// show runs rktctl stage1 verify --show.
func show(t *testing.T, e abi.Entrypoint, args ...string) *conformance.Shown {
	t.Helper()
	v := verify(t, append([]string{"--json", "--show", string(e)}, args...)...)
	s := &conformance.Shown{}
	if err := json.Unmarshal([]byte(v.stdout), s); err != nil || v.code != 0 {
		t.Fatalf("code %d, %v: %s%s", v.code, err, v.stdout, v.stderr)
	}
	return s
}

func TestShowHasExactlyWhatTheEntrypointReceives(t *testing.T) {
	t.Parallel()
	seen := t.TempDir()
	body := `[ -e ` + seen + `/env ] || {
	printf '%s\n' "$0" "$@" >` + seen + `/args; pwd >` + seen + `/pwd
	cat "$RKT_STAGE1_REQUEST" >` + seen + `/request; cat "$RKT_PROCESS" >` + seen + `/process
	readlink /proc/$$/fd/2 /proc/$$/fd/3 /proc/$$/fd/4 >` + seen + `/fds
	tr '\0' '\n' </proc/$$/environ >` + seen + `/env
}`
	s := show(t, abi.Enter, broken{entry: "enter", body: body}.image(t))
	for file, want := range map[string]string{
		"args": strings.Join(s.Args, "\n"), "pwd": s.Directory, "env": strings.Join(s.Env, "\n"),
		"fds":     s.Descriptors[2].File + "\n" + s.Descriptors[3].File + "\n" + s.Descriptors[4].File,
		"request": string(s.Request), "process": string(s.Process),
	} {
		text, err := os.ReadFile(filepath.Join(seen, file))
		must(t, err)
		got := strings.TrimSuffix(string(text), "\n")
		if file == "request" || file == "process" {
			if !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
				t.Errorf("%s is %s, shown as %s", file, got, want)
			}
			continue
		}
		if got != want {
			t.Errorf("%s is %q, shown as %q", file, got, want)
		}
	}
	if len(s.Descriptors) != 5 || s.Check != "enter/program" || s.Entrypoint != abi.Enter {
		t.Errorf("%+v", s)
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestShowOfRunInTheCheckThatIsSelected(t *testing.T) {
	t.Parallel()
	if s := show(t, abi.Run, "--run", "sandbox/empty", bundledImage(t, "native")); s.Check != "sandbox/empty" || !strings.Contains(string(s.Request), `"sandbox"`) {
		t.Errorf("%s: %s", s.Check, s.Request)
	}
}

func TestShowOfAnImmutableImage(t *testing.T) {
	t.Parallel()
	s := show(t, abi.Run, append(flyAccepts(), bundledImage(t, "fly"))...)
	if filepath.Base(s.Args[0]) != "run" || !strings.Contains(string(s.Request), `"app"`) || s.Descriptors[0].FD != 0 {
		t.Errorf("%+v", s)
	}
}

func TestShowOfACallThatIsNotMade(t *testing.T) {
	t.Parallel()
	native := bundledImage(t, "native")
	for _, c := range []struct {
		call, run, says string
		code            int
	}{
		{"app-add", "", `no call has the name "app-add"; the calls are run, enter, gc, stop, app/add`, 2},
		{"app/stats", "", `no call has the name "app/stats"`, 2},
		{"app/pause", "", "the stage1 has no app/pause; it has run, enter", 1},
		{"enter", "run/ready", "no check has called enter; they were\nrun/ready", 1},
	} {
		args := []string{"--show", c.call, native}
		if c.run != "" {
			args = append(args, "--run", c.run)
		}
		if v := verify(t, args...); v.code != c.code || !strings.Contains(v.stderr, c.says) {
			t.Errorf("%s: code %d, %s", c.call, v.code, v.stderr)
		}
	}
}

func TestTheGuideHasTheRequestOfEveryCall(t *testing.T) {
	t.Parallel()
	nothing := "exit 0"
	image := broken{more: map[string]string{
		"app_pause": nothing, "app_resume": nothing, "app_update": nothing, "app_checkpoint": nothing, "features_probe": "exit 7",
		"network": nothing,
	}}.image(t)
	requests := blocks(docs.Stage1Authors())
	for _, e := range conformance.Showable() {
		want := settled(t, string(show(t, e, image).Request))
		if got := requests[string(e)]; got == "" || !reflect.DeepEqual(decoded(t, got), any(want)) {
			text, _ := json.MarshalIndent(want, "", "  ")
			t.Errorf("the guide's request of %s is not this one:\n%s", e, text)
		}
	}
}

// blocks returns the code blocks of a document that follow a line "```json request of NAME".
func blocks(document string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```json request of (\\S+)\n(.*?)^```$").FindAllStringSubmatch(document, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// settled returns a request with fixed values in the place of those that differ from one
// verification or machine to the next.
func settled(t *testing.T, request string) map[string]any {
	t.Helper()
	for _, r := range [][2]string{
		{`/[^"]*/stage1-verify-\d+/trial-\d+(/bundle-\d+)?`, `/run/containerd/web`},
		{`/[^"]*/stage1-verify-\d+/rootfs`, `/run/containerd/web/rootfs`},
		{`"/stage1-verify-\d+/\w+"`, `"/k8s/web"`},
		{`Verify_(\d+\.\d+|app)`, `web`},
		{`/proc/\d+/`, `/proc/4711/`},
	} {
		request = regexp.MustCompile(r[0]).ReplaceAllString(request, r[1])
	}
	m := decoded(t, request).(map[string]any)
	delete(m, "traceparent") // only of a client that traces, as two of the checks do
	for name, value := range map[string]any{
		"pod": "6733c088-a507-4694-aabf-edbe4fc5266f", "app": "web",
		"cgroup": map[string]any{"version": 2.0, "dirs": []any{"/sys/fs/cgroup/k8s/web"}},
	} {
		if old, there := m[name]; there && old != "" {
			m[name] = value
		}
	}
	return m
}
