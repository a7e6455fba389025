package integration

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// filesOfReport returns the files of an archive of rktctl report.
func filesOfReport(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
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
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// What an operator sees of a running container and of one that could not be started has none
// of the secrets that containerd has passed to them.
func TestTheReportAndTheMetricsOfANodeHaveNoSecrets(t *testing.T) {
	const canary = "CANARY-of-a-container"
	secrets := []oci.SpecOpts{
		oci.WithEnv([]string{"TOKEN=" + canary + "-env"}),
		oci.WithAnnotations(map[string]string{"example.com/secret": canary + "-annotation"}),
		oci.WithMounts([]specs.Mount{{Destination: "/" + canary + "-mount", Type: "tmpfs", Source: canary + "-source", Options: []string{"mode=700"}}}),
	}
	eachNode(t, "operator", func(t *testing.T, n *node) {
		container := n.container(t, []string{"testprog", "sleep", "1000", canary + "-arg"}, secrets...)
		task := n.newTask(t, container, cio.NullIO)
		exited := n.wait(t, task)
		if err := task.Start(n.context(t)); err != nil {
			t.Fatal(err)
		}
		exec, err := task.Exec(n.context(t), "exec", &specs.Process{Args: []string{"testprog", "sleep", "1000", canary + "-exec"}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin:/usr/local/bin", "X=" + canary}}, cio.NullIO)
		if err == nil {
			err = exec.Start(n.context(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		absent := n.container(t, []string{"/" + canary + "-is-no-program"}, secrets...)
		if _, err := absent.NewTask(n.context(t), cio.NullIO); err == nil {
			t.Error("a program that is not there was started")
		}

		path := filepath.Join(t.TempDir(), "report.tar.gz")
		if out, err := n.rktctl("report", "--file", path); err != nil || !strings.Contains(out, "journal.json") {
			t.Fatalf("%v: %s", err, out)
		}
		dir, _ := n.pod(t, container.ID())
		files := filesOfReport(t, path)
		for name, text := range files {
			// Args[0] is the name of a program, and is in the error that the client has.
			text = strings.ReplaceAll(text, canary+"-is-no-program", "")
			if strings.Contains(text, canary) {
				t.Errorf("%s: %s", name, text)
			}
		}
		journal := fmt.Sprintf("rkt-report/pods/%s/journal.json", filepath.Base(dir))
		if !strings.Contains(files[journal], `"app/add"`) || !strings.Contains(files["rkt-report/failed.json"], absent.ID()) {
			t.Errorf("%s: %s; %s", journal, files[journal], files["rkt-report/failed.json"])
		}
		var findings []struct{ Area, Severity, Text string }
		if err := json.Unmarshal([]byte(files["rkt-report/doctor.json"]), &findings); err != nil || len(findings) < 5 {
			t.Errorf("%v: %s", err, files["rkt-report/doctor.json"])
		}
		out, err := n.rktctl("metrics")
		for _, want := range []string{`rkt_apps{state="running"} 1`, `rkt_pods{stage1="native",state="running"} 1`, `rkt_failed_starts_total{stage1="native",step="create"} 1`, `rkt_processes{kind="shim"} 1`} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%v: no %s in %s", err, want, out)
			}
		}
		if strings.Contains(out, canary) || strings.Contains(out, container.ID()) {
			t.Error(out)
		}
		kill(t, n.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		n.drop(t, task)
	})
}
