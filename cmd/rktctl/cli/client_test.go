package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

func TestTheClientsCommandIsNamed(t *testing.T) {
	f := newFixture(t)
	f.pod("default", "plain", "plain")
	f.pod("moby", "whale", "whale")
	_, cri := f.pod("k8s.io", "sandbox1", "container1")
	if err := os.WriteFile(filepath.Join(cri[0].Record().Bundle, "config.json"), []byte(`{"annotations": {
		"io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": "web-0",
		"io.kubernetes.cri.sandbox-uid": "u-1", "io.kubernetes.cri.container-name": "nginx"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.pod("k8s.io", "sandbox2", "container2") // its config.json cannot be read
	for _, c := range []struct{ verb, pod, want string }{
		{"attach", "plain", "use ctr --address /run/c.sock --namespace default task attach plain"},
		{"logs", "plain", "use nerdctl --namespace default logs plain"},
		{"stop", "plain", "use ctr --address /run/c.sock --namespace default task kill plain"},
		{"rm", "plain", "task delete --force plain, and ctr"},
		{"attach", "whale", "use docker attach whale"}, {"logs", "whale", "use docker logs whale"},
		{"stop", "whale", "use docker stop whale"}, {"rm", "whale", "use docker rm whale"},
		{"attach", "container1", "use crictl attach container1"},
		{"logs", "container1", "use crictl logs container1, or the files in /var/log/pods/shop_web-0_u-1/nginx"},
		{"stop", "container1", "use kubectl delete pod web-0 --namespace shop"}, {"rm", "sandbox1", "use kubectl delete pod web-0 --namespace shop"},
		{"stop", "container2", "use crictl stopp sandbox2"}, {"logs", "container2", "use crictl logs container2"},
		{"rm", "container2", "use crictl rmp sandbox2"},
	} {
		got := rktctl(t, "", c.verb, c.pod)
		if got.code != exitWrong || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
			t.Errorf("%s %s: %+v", c.verb, c.pod, got)
		}
	}
	for _, verb := range []string{"stop", "rm"} {
		if got := rktctl(t, "", verb, "--force", "plain"); got.code != exitWrong || !strings.Contains(got.stderr, "its shim is alive") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	if got := rktctl(t, "", "status", "plain"); !strings.Contains(got.stdout, "running") {
		t.Errorf("a pod that was not to be stopped: %+v", got)
	}
}

// A local pod that is being removed has lost the record that says that it is one.
func TestTheLogOfALocalPodIsPrintedWhileThePodIsRemoved(t *testing.T) {
	newFixture(t)
	const uuid = "11110000-0000-4000-8000-000000000000"
	data := os.Getenv(testData)
	put(t, filepath.Join(data, "local", uuid, "pod.json"), `{"version":1,"state":"ready"}`)
	put(t, filepath.Join(data, "local", uuid, "apps/only/app.json"), "{}")
	put(t, filepath.Join(data, "local", uuid, "logs/only.log"), "hello\n")
	put(t, filepath.Join(data, "pods/exited-garbage", uuid, "left"), "")
	if got := rktctl(t, "", "logs", uuid); got.code != exitDone || got.stdout != "hello\n" {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsExecutedInAPodWithoutAShim(t *testing.T) {
	f := newFixture(t)
	d, apps := f.pod("default", "web", "web")
	bundle := apps[0].Record().Bundle
	if err := os.Remove(filepath.Join(bundle, "config.json")); err != nil {
		t.Fatal(err)
	}
	if got := rktctl(t, "", "exec", "web", "true"); got.code != exitWrong || !strings.Contains(got.stderr, "config.json") {
		t.Errorf("without a config.json: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"process": {"rlimits": [{"hard": 18446744073709551615}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := rktctl(t, "", "exec", "web", "true"); got.code != exitWrong || !strings.Contains(got.stderr, "no address of a shim") {
		t.Errorf("without an address: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(bundle, "address"), []byte("unix:///no/such/socket"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := rktctl(t, "", "enter", "web"); got.code != exitWrong || !strings.Contains(got.stderr, "/no/such/socket") {
		t.Errorf("without a socket: %+v", got)
	}
	f.shimDies(d)
	if got := rktctl(t, "", "exec", "web", "--", "true", "-x"); got.code != exitWrong || !strings.Contains(got.stderr, "the shim of pod "+d.UUID()+" is dead") {
		t.Errorf("without a shim: %+v", got)
	}
	for _, args := range [][]string{{"exec", "web"}, {"enter"}, {"exec", "-t", "web", "sh"}, {"exec", "--user", "root", "web", "sh"}, {"exec", "-e", "X", "web", "sh"}} {
		if got := rktctl(t, "", args...); got.code != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if id := execID(); id == execID() || len(id) != len("rktctl-")+16 {
		t.Errorf("the id %s", id)
	}
}

func TestRmRemovesASandboxWhoseShimIsDead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods belong to root")
	}
	f := newFixture(t)
	d, apps := f.pod("k8s.io", "sandbox1", "container1")
	bundle := t.TempDir()
	files, err := d.NewSandboxFiles(disk.Sandbox{ID: "sandbox1", Bundle: bundle})
	if err == nil {
		err = files.Make(disk.Sandbox{Files: []disk.SandboxFile{{Name: "hosts", Content: []byte("x")}}})
	}
	if err == nil {
		err = d.ReleaseLock()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := rktctl(t, "", "rm", "--force", "sandbox1"); got.code != exitWrong || !strings.Contains(got.stderr, "its shim is alive") {
		t.Errorf("%+v", got)
	}
	f.shimDies(d)
	if got := rktctl(t, "", "rm", "sandbox1"); got.code != exitWrong || !strings.Contains(got.stderr, "use crictl rmp sandbox1") {
		t.Errorf("%+v", got)
	}
	done(t, "rm", "--force", "sandbox1")
	if _, err := os.Lstat(d.Path()); !os.IsNotExist(err) {
		t.Errorf("the pod is still there: %v", err)
	}
	for _, b := range []string{bundle, apps[0].Record().Bundle} { // for containerd, which has not called `delete` yet
		if text, err := os.ReadFile(filepath.Join(b, "rkt.json")); err != nil || !strings.Contains(string(text), `"code":137`) {
			t.Errorf("%s: %s, %v", b, text, err)
		}
	}
	if got := done(t, "list", "--json"); got != "[]\n" {
		t.Error(got)
	}
}
