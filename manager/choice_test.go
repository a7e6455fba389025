package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// configured is a daemon on a node with a configuration.
func configured(t *testing.T, text string) (d *daemon, file string) {
	t.Helper()
	d = newDaemon(t)
	file = filepath.Join(d.state, "config.toml")
	write(t, file, []byte(text))
	d.env = []string{testConfig + "=" + file}
	return d, file
}

const foxIsAllowed = "[stage1.fox]\npods_may_ask = true\n"

func asks(stage1 string) map[string]string { return map[string]string{annotation.Stage1: stage1} }

func TestStartHandsTheServerTheStage1OfTheAnnotation(t *testing.T) {
	d, _ := configured(t, foxIsAllowed)
	address := d.start24("default", "c1", asks("fox"))
	if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "default|c1|c1|fox|") {
		t.Errorf("the server was handed %q", got)
	}
}

func TestStartHandsTheServerTheDefaultOfTheConfiguration(t *testing.T) {
	d, _ := configured(t, "default = 'fox'\n")
	address := d.start24("default", "c1", nil)
	if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "default|c1|c1|fox|") {
		t.Errorf("the server was handed %q", got)
	}
}

func TestAStage1ThatPodsMayNotAskForFailsStartAndLeavesNoServer(t *testing.T) {
	for text, want := range map[string]string{
		"":                  `asks for the stage1 "fox", which pods may not choose here; this pod may have native`,
		"[stage1.fox]\n":    `asks for the stage1 "fox", which pods may not choose here; this pod may have native`,
		"[stage1.fix]\nx=1": "config.toml:2:1: unknown key stage1.fix.x",
	} {
		d, _ := configured(t, text)
		out := d.call(d.bundle("default", "c1", asks("fox")), "default", "c1", nil, nil, "start")
		if out.err == nil || !strings.Contains(string(out.stderr), want) || len(out.stdout) > 0 {
			t.Errorf("%q: start ended with %v, stdout %q, stderr %q", text, out.err, out.stdout, out.stderr)
		}
		path, err := early.SocketPath("", d.address, "default", "c1")
		if err != nil || exists(path) {
			t.Errorf("%q: there is a socket %s, %v", text, path, err)
		}
		if servers := serversOf(t, d.address); len(servers) > 0 {
			t.Errorf("%q: there are the servers %v", text, servers)
		}
	}
}

// A server that cannot use the data directory could not tell it to a client.
func TestADataDirectoryThatCannotBeUsedFailsStartAndLeavesNoServer(t *testing.T) {
	d, _ := configured(t, "")
	d.env = append(d.env, testDataDir+"=/tmp is shared")
	out := d.call(d.bundle("default", "c1", nil), "default", "c1", nil, nil, "start")
	if out.err == nil || !strings.Contains(string(out.stderr), ": /tmp is shared") || len(out.stdout) > 0 {
		t.Errorf("start ended with %v, stdout %q, stderr %q", out.err, out.stdout, out.stderr)
	}
	path, err := early.SocketPath("", d.address, "default", "c1")
	if err != nil || exists(path) || len(serversOf(t, d.address)) > 0 {
		t.Errorf("there is a socket %s or a server, %v", path, err)
	}
}

// A container that is restarted in its pod gets the stage1 of the pod. A change of the
// configuration applies to new pods only.
func TestThePodsOfServersThatLiveAreNotChosenForAgain(t *testing.T) {
	d, file := configured(t, foxIsAllowed)
	member := asks("fox")
	member[annotation.Group] = "pod"
	first := d.start24("default", "c1", member)
	for _, text := range []string{"", "not TOML"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if second := d.start24("default", "c2", member); second != first {
			t.Errorf("with %q there is a second server", text)
		}
	}
	if out := d.call(d.bundle("default", "c3", asks("fox")), "default", "c3", nil, nil, "start"); out.err == nil {
		t.Errorf("a new pod has started: %q", out.stdout)
	}
}

// requirements.md#O5
func TestInfoDescribesTheDefaultOfTheConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	write(t, file, []byte("default = 'fox'\n"))
	t.Setenv(testConfig, file)
	for argv0, want := range map[string]string{"containerd-shim-rkt-v1": "fox", "containerd-shim-rkt-oci-v1": "oci"} {
		if r := info(t, argv0, stdinOf(t, nil)); r.Annotations["stage1"] != want {
			t.Errorf("%s describes %s, want %s", argv0, r.Annotations["stage1"], want)
		}
	}
}
