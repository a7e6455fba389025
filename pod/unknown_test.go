package pod

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

func TestFieldsThatNoSpecHasAreOnRecord(t *testing.T) {
	w := newWorld(t)
	w.stage1.unknown = []string{"/novel", "/procss (is process meant?)"}
	w.mustCreate("a", "exec sleep 1000")
	var r disk.AppRecord
	records, _ := filepath.Glob(filepath.Join(w.data, "pods/run/*/appsinfo/*/app.json"))
	if len(records) != 1 {
		t.Fatalf("records %q", records)
	}
	text, err := os.ReadFile(records[0])
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || !slices.Equal(r.Unknown, w.stage1.unknown) {
		t.Errorf("the record has %q, %v", r.Unknown, err)
	}
	w.mustStart("a", "")
	w.mustAddExec("a", "probe", "exit 0")
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":21}}`)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(filepath.Dir(filepath.Dir(records[0])))
	fields, app := strings.Join(w.stage1.unknown, " "), string(r.Name)
	if want := []string{dir + " " + app + "  " + fields, dir + " " + app + " probe " + fields, dir + " " + app + "  " + fields}; !slices.Equal(w.stage1.noted, want) {
		t.Errorf("the journal has %q, want %q", w.stage1.noted, want)
	}
	w.mustDelete("a", "probe")
	w.end("a")
}

// The OCI runtime spec asks for a warning.
func TestCapabilitiesThatNoKernelHasAreNamed(t *testing.T) {
	p := &specs.Process{Capabilities: &specs.LinuxCapabilities{
		Bounding: []string{"CAP_KILL", "cap_chown", "CAP_NET_ADMINN"}, Ambient: []string{"KILL"},
	}}
	want := []string{`/process/capabilities/bounding/2 ("CAP_NET_ADMINN" is no capability)`, `/process/capabilities/ambient/0 ("KILL" is no capability)`}
	if got := unknownCapabilities(p); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := unknownCapabilities(&specs.Process{}); got != nil {
		t.Errorf("without capabilities: %q", got)
	}
}

func TestAnUpdateWithRefusedFieldsChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":21}}`)); err != nil {
		t.Fatal(err)
	}
	w.stage1.refuse = errdefs.ErrInvalidArgument
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":22},"novel":1}`)); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "container a") {
		t.Errorf("%v", err)
	}
	if got := w.pidsMax("a"); got != "21" {
		t.Errorf("pids.max is %s", got)
	}
	w.mustDelete("a", "")
}
