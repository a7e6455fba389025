package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// hostile makes a pod with secrets wherever a spec, a record or a journal can have one.
func hostile(t *testing.T, data string) *disk.Dir {
	t.Helper()
	store, err := disk.OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	d, err := store.Create(disk.Key{Daemon: "/run/c.sock", Namespace: "ns", Sandbox: "web"}, disk.Stage1Record{Name: "native", By: "built in"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Remove(t.Context()) })
	bundle := filepath.Join(t.TempDir(), "web")
	text := plainSpec[:len(`{"ociVersion":"1.1.0",`)] + `"process":{"args":["sh","CANARY-arg-1","--password=CANARY-arg-2"],"env":["TOKEN=CANARY-env\",\"quoted"],"cwd":"/"},"root":{"path":"rootfs"},
	"annotations":{"example.com/secret":"CANARY-annotation","io.kubernetes.cri.labels":"CANARY-label"},
	"hooks":{"poststop":[{"path":"/bin/h","args":["h","CANARY-hook-arg"],"env":["H=CANARY-hook-env"]}]},
	"mounts":[{"destination":"/CANARY-destination","source":"/CANARY-source","type":"bind","options":["password=CANARY-mount"]}]}`
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
	said, err := json.Marshal("no CANARY-env\",\"quoted, CANARY-arg-1, CANARY-annotation, CANARY-mount, CANARY-hook-env \x1b[2J")
	if err != nil {
		t.Fatal(err)
	}
	journal := fmt.Sprintf(`{"entrypoint":"enter","app":%q,"argv":["/enter","CANARY-exec-arg"],"ms":1,"code":1,"error":%s}`+"\n", app.Name(), said)
	if err := os.WriteFile(filepath.Join(d.Path(), "journal"), []byte(journal), 0o600); err != nil {
		t.Fatal(err)
	}
	err = disk.KeepFailure(data, disk.FailedStart{Step: disk.StepCreate, Error: "CANARY-arg-1", Starts: []disk.Start{{Time: time.Now(), ID: "web", Bundle: bundle}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unpacked returns the files of an archive.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "rkt-report/")] = string(content)
	}
}

func TestAReportHasNoSecretOfAnyContainer(t *testing.T) {
	bundled(t, "native")
	data := filepath.Join(t.TempDir(), "rkt")
	d := hostile(t, data)
	containerd := specFile(t, "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry.configs.'x'.auth]\npassword = 'CANARY-registry'\n"+
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.rkt]\nruntime_type = 'io.containerd.rkt.v1'\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.rkt.options]\nSecret = 'CANARY-option'\n")
	file := configured(t, "# CANARY-comment", "[stage1.native]", "pods_may_ask = true")
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	got := onNode(t, file, data, "report", "--file", path, "--containerd-config", containerd)
	if got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	files := unpacked(t, path)
	for name, text := range files {
		if strings.Contains(text, "CANARY") || strings.Contains(text, "\x1b") {
			t.Errorf("%s: %s", name, text)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON: %s", name, text)
		}
		if !strings.Contains(got.stdout, name) {
			t.Errorf("%s is not listed in %s", name, got.stdout)
		}
	}
	pod := "pods/" + d.UUID()
	for name, want := range map[string]string{
		"README.txt": "[redacted]", "versions.json": `"abi": 7`, "doctor.json": `"severity"`, "config.json": `"PodsMayAsk": true`,
		"handlers.json": `"io.containerd.rkt.v1"`, "failed.json": `"error": "[redacted]"`, pod + "/pod.json": d.UUID(), pod + "/journal.json": `no [redacted]`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: no %q in %s", name, want, files[name])
		}
	}
	if !strings.Contains(files["handlers.json"], "Secret") || len(files) != 8 {
		t.Errorf("%d files; %s", len(files), files["handlers.json"])
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if got := onNode(t, file, data, "report", "--file", path); got.code != exitWrong || !strings.Contains(got.stderr, "exists") {
		t.Errorf("an archive was replaced: %+v", got)
	}
}

func TestAReportFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "report")); err != nil {
		t.Fatal(err)
	}
	if _, err := (&archive{}).write(filepath.Join(dir, "report")); err == nil {
		t.Error("written")
	}
	if _, err := os.Lstat(filepath.Join(dir, "target")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestAReportIsBounded(t *testing.T) {
	a := &archive{}
	for i := range 2 * reportSize / reportFile {
		a.text(fmt.Sprintf("%d.txt", i), strings.Repeat("x", 2*reportFile))
	}
	path := filepath.Join(t.TempDir(), "report")
	c, err := a.write(path)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, f := range c.Files {
		total += f.Bytes
		if f.Bytes > reportFile || f.Note == "" {
			t.Errorf("%+v", f)
		}
	}
	files := unpacked(t, path)
	if total > reportSize || total == 0 || len(files) != len(c.Files) {
		t.Errorf("%d bytes, %d files of %d", total, len(files), len(c.Files))
	}
}

func TestTheKernelsLogIsInAReportOnlyIfAskedFor(t *testing.T) {
	bundled(t, "native")
	data := filepath.Join(t.TempDir(), "rkt")
	path := filepath.Join(t.TempDir(), "report")
	if got := onNode(t, configured(t), data, "report", "--dmesg", "--json", "--file", path); got.code != exitDone || !strings.Contains(got.stdout, `"dmesg.txt"`) {
		t.Errorf("%+v", got)
	}
	if _, ok := unpacked(t, path)["dmesg.txt"]; !ok {
		t.Error("it is not there")
	}
}

func TestTheDistributionIsItsIdAndVersion(t *testing.T) {
	if got := osRelease("NAME=x\nID=debian\nVERSION_ID=\"12\"\n"); got != "debian 12" {
		t.Errorf("%q", got)
	}
}
