package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// onNode calls rktctl on a node with a data directory.
func onNode(t *testing.T, file, data string, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	vars := map[string]string{config.FileVariable: file, config.DataDirVariable: data}
	e := &Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(name string) string { return vars[name] }}
	code := Run(t.Context(), e, args)
	return answer{stdout.String(), stderr.String(), code}
}

// limited is an image that honours few fields.
func limited(t *testing.T) string {
	t.Helper()
	stage1test.RequireRoot(t)
	return stage1test.Image{Features: `{"fields":["/process/args","/process/cwd","/process/user","/root/path","/linux/namespaces"]}`}.Dir(t)
}

// specFile writes a config.json.
func specFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const plainSpec = `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"}`

func TestWhyJudgesAConfigJSONForTheStage1ThatItWouldGet(t *testing.T) {
	file := configured(t, "default = 'mine'", "[stage1.mine]", "path = '"+limited(t)+"'", "accept = ['/hostname']",
		"[stage1.other]", "path = '"+limited(t)+"'", "pods_may_ask = true")
	for name, c := range map[string]struct {
		spec  string
		args  []string
		code  int
		words []string
		not   string
	}{
		"accepted":      {plainSpec + `}`, nil, exitDone, []string{"The stage1 is mine: it is the default of this node's configuration.", "Neither stage 0 nor"}, "refused"},
		"excused":       {plainSpec + `,"hostname":"x","hostnam":"y"}`, nil, exitDone, []string{"ignored   /hostname: the stage1 does not honour it", "ignored   /hostnam (is hostname meant?): no OCI runtime spec has it"}, "would fail"},
		"refused":       {plainSpec + `,"domainname":"x","mounts":[{"type":"bind"}]}`, nil, exitWrong, []string{"refused   /domainname: stage1 mine", "refused   /mounts: stage1 mine", "would fail: config.json asks for /domainname, which stage1 mine does not support"}, ""},
		"a limit of 0":  {plainSpec + `,"linux":{"resources":{"memory":{"limit":0}}}}`, nil, exitDone, []string{"ignored   linux.resources.memory.limit: 0: a limit that is not set"}, ""},
		"a limit":       {plainSpec + `,"linux":{"resources":{"memory":{"limit":9,"swap":8}}}}`, nil, exitWrong, []string{"would fail: linux.resources.memory.swap: 8"}, ""},
		"a cgroup":      {plainSpec + `,"linux":{"cgroupsPath":"/"}}`, nil, exitWrong, []string{"not a cgroup that a container can have"}, ""},
		"no process":    {`{"ociVersion":"1.1.0","root":{"path":"r"}}`, nil, exitWrong, []string{"has no process"}, ""},
		"a version":     {`{"ociVersion":"2.0.0"}`, nil, exitWrong, []string{"ociVersion"}, ""},
		"no JSON":       {`{`, nil, exitWrong, []string{"not an OCI runtime spec"}, ""},
		"annotation":    {plainSpec + `,"annotations":{"io.containerd.rkt.v1/stage1":"other"}}`, nil, exitDone, []string{"The stage1 is other: the pod's annotation io.containerd.rkt.v1/stage1 asks for it."}, ""},
		"forbidden":     {plainSpec + `,"annotations":{"io.containerd.rkt.v1/stage1":"native"}}`, nil, exitWrong, []string{"pods may not choose here"}, ""},
		"misspelt":      {plainSpec + `,"annotations":{"io.containerd.rkt.v1/stage":"x"}}`, []string{"--stage1", "mine"}, exitWrong, []string{"did you mean"}, ""},
		"a runtime":     {plainSpec + `}`, []string{"--runtime", "io.containerd.rkt-other.v1"}, exitDone, []string{"The stage1 is other: the name of the runtime pins it."}, ""},
		"named":         {plainSpec + `}`, []string{"--stage1", "other"}, exitDone, []string{"The stage1 is other: the option --stage1 names it."}, ""},
		"not there":     {plainSpec + `}`, []string{"--stage1", "gone"}, exitWrong, nil, "would"},
		"wrong runtime": {plainSpec + `}`, []string{"--runtime", "runc"}, exitUsage, nil, ""},
		"escapes":       {plainSpec + `,"\u001b[2J":{"a":1},"annotations":{"io.containerd.rkt.v1/\u001b]0;x":""}}`, nil, exitWrong, nil, "\x1b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rktctl(t, file, append([]string{"why", specFile(t, c.spec)}, c.args...)...)
			if got.code != c.code || c.not != "" && strings.Contains(got.stdout, c.not) {
				t.Errorf("%+v", got)
			}
			for _, want := range c.words {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("no %q in %s%s", want, got.stdout, got.stderr)
				}
			}
		})
	}
	got := rktctl(t, file, "why", "--json", specFile(t, plainSpec+`,"domainname":"x"}`))
	var v verdict
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || v.Stage1 != "mine" || len(v.Refused) != 1 || v.Refused[0].Field != "/domainname" || v.Error == "" {
		t.Errorf("%+v: %v", got, err)
	}
}

// madePod makes a pod of one app as a shim does, without a process.
func madePod(t *testing.T, data string) (*disk.Dir, string) {
	t.Helper()
	dir := limited(t)
	images, err := image.OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	i, err := images.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	store, err := disk.OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	d, err := store.Create(disk.Key{Daemon: "/run/c.sock", Namespace: "ns", Sandbox: "web"}, disk.Stage1Record{
		Name: "mine", Digest: i.Digest(), By: "annotation", Excused: []string{"/hostname"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Remove(t.Context()) })
	bundle := filepath.Join(t.TempDir(), "web")
	text := plainSpec + `,"hostname":"x","linux":{"resources":{"memory":{"limit":0}}},"annotations":{"io.containerd.rkt.v1/stage1":"mine","other":"CANARY"}}`
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := spec.Read[specs.Spec]([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	app, err := d.AddApp("web", bundle, &s.OCI)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Update(func(r *disk.AppRecord) {
		r.Unknown, r.Options = []string{"/hostnam (is hostname meant?)"}, []string{"no_pivot_root", "binary_name (not used)"}
	}); err != nil {
		t.Fatal(err)
	}
	journal := fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","entrypoint":"run","argv":["/run","CANARY"],"state":"ready","ms":12.5,"code":0}
{"time":"2026-01-02T03:04:06Z","entrypoint":"app/add","app":%q,"argv":["/add","CANARY"],"ms":3,"code":1,"error":"\u001b[2Jno room"}
{"time":"2026-01-02T03:04:06Z","entrypoint":"app/add","app":"another","ms":3,"code":0}
`, app.Name())
	for name, text := range map[string]string{"journal": journal, image.IDFile: i.Digest() + "\n"} {
		if err := os.WriteFile(filepath.Join(d.Path(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d, bundle
}

func TestWhyTellsAPodsStory(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	d, bundle := madePod(t, data)
	for _, word := range []string{d.UUID(), d.UUID()[:6], "we"} {
		got := onNode(t, configured(t), data, "why", word)
		for _, want := range []string{
			"Pod " + d.UUID(), "in the namespace ns of the containerd at /run/c.sock",
			"The stage1 is mine: the pod's annotation io.containerd.rkt.v1/stage1 asks for it.", "it may ignore: /hostname",
			"annotation that has arrived: io.containerd.rkt.v1/stage1 = mine",
			"runtime options that have arrived: no_pivot_root, binary_name (not used)",
			"not enforced: /hostname: the stage1 does not honour it",
			"not enforced: /hostnam (is hostname meant?): no OCI runtime spec has it",
			"not enforced: linux.resources.memory.limit: 0: a limit that is not set",
			"12.5  run               ready", "3.0  app/add              1  web", "no room",
		} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s: no %q in %s%s", word, want, got.stdout, got.stderr)
			}
		}
		if got.code != exitDone || strings.Contains(got.stdout, "CANARY") || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%s: %+v", word, got)
		}
	}
	if got := onNode(t, configured(t), data, "why", "web"); strings.Contains(got.stdout, "another") {
		t.Errorf("calls of another app: %s", got.stdout)
	}
	var s story
	got := onNode(t, configured(t), data, "why", "--json", "web")
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || len(s.Apps) != 1 || len(s.Apps[0].NotEnforced) != 3 || len(s.Calls) != 2 || strings.Contains(got.stdout, "CANARY") {
		t.Errorf("%v: %+v", err, got)
	}
	if err := os.RemoveAll(bundle); err != nil {
		t.Fatal(err)
	}
	if got := onNode(t, configured(t), data, "why", "web"); got.code != exitDone || !strings.Contains(got.stdout, "its config.json is gone with its bundle") {
		t.Errorf("%+v", got)
	}
}

func TestWhyKnowsTheAnnotationsOfASandbox(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	d, _ := madePod(t, data)
	if _, err := d.NewSandboxFiles(disk.Sandbox{ID: "box", Bundle: t.TempDir(), Annotations: map[string]string{annotation.Stage1: "mine"}}); err != nil {
		t.Fatal(err)
	}
	if got := onNode(t, configured(t), data, "why", "web"); !strings.Contains(got.stdout, "annotation of the pod that has arrived: io.containerd.rkt.v1/stage1 = mine") {
		t.Errorf("%+v", got)
	}
}

func TestWhyKnowsStartsThatHaveFailed(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	if got := onNode(t, configured(t), data, "why"); got.stdout != "No start has failed lately.\n" || got.code != exitDone {
		t.Errorf("%+v", got)
	}
	bundle := filepath.Dir(specFile(t, `{"process":{"env":["T=CANARY-secret"]},"annotations":{"io.containerd.rkt.v1/stage1":"oci","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.container-name":"app"}}`))
	for range 3 {
		err := disk.KeepFailure(data, disk.FailedStart{
			Step: disk.StepCreate, Namespace: "k8s.io", Error: "stage1 oci: app/add: no CANARY-secret", Stage1: &disk.Stage1Record{Name: "oci", By: "annotation"},
			Starts: []disk.Start{{Time: time.Now(), ID: "abc123", Bundle: bundle, Pod: "0f0f"}},
			Calls:  []journal.Entry{{Entrypoint: "run", State: "ready", Millis: 7}, {Entrypoint: "app/add", Code: 1, Error: "said CANARY-secret"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"abc", "0f0f", "web-0", "shop/web-0/app"} {
		got := onNode(t, configured(t), data, "why", word)
		for _, want := range []string{
			"The start of abc123 failed at", "when the container was created", "Kubernetes calls it shop/web-0/app", "like this 3 times",
			"stage1 oci: app/add: no [redacted]", "The stage1 is oci: the pod's annotation", "io.containerd.rkt.v1/stage1 = oci", "run               ready", "said [redacted]",
		} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s: no %q in %+v", word, want, got)
			}
		}
		if got.code != exitDone || strings.Contains(got.stdout, "CANARY") {
			t.Errorf("%s: %+v", word, got)
		}
	}
	if got := onNode(t, configured(t), data, "why"); !strings.Contains(got.stdout, "shop/web-0/app") || strings.Contains(got.stdout, "CANARY") {
		t.Errorf("%+v", got)
	}
	if got := onNode(t, configured(t), data, "why", "nothing"); got.code != exitWrong || !strings.Contains(got.stderr, "nor has a start of it failed") {
		t.Errorf("%+v", got)
	}
}
