package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestStage1ShowShowsAnImageByNamePathAndDigest(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	d, _ := madePod(t, data)
	digest, err := os.ReadFile(filepath.Join(d.Path(), image.IDFile))
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.TrimSpace(string(digest))
	file := configured(t, "[stage1.mine]", "digest = '"+sum+"'", "accept = ['/hostname']", "pods_may_ask = true")
	for _, arg := range []string{"mine", sum, sum[:12], strings.TrimPrefix(sum, "sha512-")[:6]} {
		got := onNode(t, file, data, "stage1", "show", "--json", arg)
		var s shownStage1
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || got.code != exitDone {
			t.Fatalf("%s: %v: %+v", arg, err, got)
		}
		if s.Digest != sum || s.Version != 7 || !s.Mutable || len(s.Fields.Stage1) != 5 || len(s.Pods) != 1 || s.Pods[0] != d.UUID() {
			t.Errorf("%s: %+v", arg, s)
		}
		if named := arg == "mine"; named != (s.Config != nil) || named != (len(s.Fields.Accept) == 1) {
			t.Errorf("%s: %+v", arg, s.Config)
		}
	}
	got := onNode(t, file, data, "stage1", "show", "mine")
	for _, want := range []string{
		"mine, interface version 7", "pods may ask for it: yes", "pinned: yes", "run             /run, at most 30s", "enter           - an exec is refused",
		"from the features document", "/process/args /process/cwd", "the configuration lets it ignore\n    /hostname", "Pods with this tree: " + d.UUID(),
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in %s%s", want, got.stdout, got.stderr)
		}
	}
	for _, arg := range []string{"gone", "ffff", "/no/such/image"} {
		if got := onNode(t, file, data, "stage1", "show", arg); got.code != exitWrong || got.stdout != "" {
			t.Errorf("%s: %+v", arg, got)
		}
	}
}

func TestStage1ShowAsksAnImageWhatItCanDoHere(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Image{
		Features: `{"fields":["/process/args"]}`,
		Scripts:  stage1test.Scripts{abi.FeaturesProbe: `echo '{"fields":["/process/args","/hostname"],"files":["/bin/sh"]}'`},
	}.Dir(t)
	data := filepath.Join(t.TempDir(), "absent")
	got := onNode(t, configured(t), data, "stage1", "show", dir)
	if got.code != exitDone || !strings.Contains(got.stdout, "from the answer of features/probe on this node") || !strings.Contains(got.stdout, "/process/args /hostname") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data directory was made: %v", err)
	}
	broken := stage1test.Image{Features: `{"fields":["/process/args"]}`, Scripts: stage1test.Scripts{abi.FeaturesProbe: `fail 3 no runc here`}}.Dir(t)
	got = onNode(t, configured(t), data, "stage1", "show", broken)
	if got.code != exitDone || !strings.Contains(got.stdout, "no runc here") || !strings.Contains(got.stdout, "from the features document") {
		t.Errorf("%+v", got)
	}
}

func TestStage1ShowSaysWhatStage0DoesInPlaceOfEachEntrypoint(t *testing.T) {
	for _, e := range abi.Entrypoints() {
		if needed := e == abi.Run || e == abi.Attach; needed == (instead[e] != "") {
			t.Errorf("%s: %q", e, instead[e])
		}
	}
}
