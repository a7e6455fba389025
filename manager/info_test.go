package manager

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/console"
	"github.com/containerd/containerd/api/types"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/options"
)

func info(t *testing.T, argv0 string, stdin *os.File) *types.RuntimeInfo {
	t.Helper()
	var stdout bytes.Buffer
	if err := fakeProgram().call(t.Context(), []string{argv0, "-info"}, stdin, &stdout); err != nil {
		t.Fatal(err)
	}
	var r types.RuntimeInfo
	if err := proto.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stdinOf returns a file to read b from.
func stdinOf(t *testing.T, b []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	write(t, path, b)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// requirements.md#O5
func TestInfoDescribesTheStage1ThatTheNamePins(t *testing.T) {
	for argv0, want := range map[string][2]string{
		"/bin/containerd-shim-rkt-v1":     {"io.containerd.rkt.v1", "native"},
		"/bin/containerd-shim-rkt-oci-v1": {"io.containerd.rkt-oci.v1", "oci"},
	} {
		r := info(t, argv0, stdinOf(t, nil))
		if r.Name != want[0] || r.Annotations["stage1"] != want[1] || r.Version.Version != "1.2.3" || r.Version.Revision != "abc" {
			t.Errorf("%s described itself as %v", argv0, r)
		}
		if r.Features.GetTypeUrl() != "types.containerd.io/opencontainers/runtime-spec/1/features/Features" ||
			string(r.Features.GetValue()) != `{"ociVersionMax":"1.3.0"}` {
			t.Errorf("%s has the features %v", argv0, r.Features)
		}
		if r.Options != nil {
			t.Errorf("%s made up the options %v", argv0, r.Options)
		}
	}
}

// requirements.md#O5
func TestInfoRepeatsTheOptions(t *testing.T) {
	for _, sent := range []*anypb.Any{
		{TypeUrl: "runtimeoptions.v1.Options", Value: encoded(t, &runtimeoptions.Options{ConfigBody: []byte("SystemdCgroup = true\n")})},
		{TypeUrl: "example.com/Unknown", Value: []byte("anything")},
	} {
		if r := info(t, "containerd-shim-rkt-v1", stdinOf(t, encoded(t, sent))); !proto.Equal(r.Options, sent) {
			t.Errorf("options are %v", r.Options)
		}
	}
}

// requirements.md#O5
func TestInfoDescribesTheStage1ThatTheOptionsName(t *testing.T) {
	sent := encoded(t, &anypb.Any{TypeUrl: "containerd.rkt.v1.Options", Value: encoded(t, &options.Options{Stage1: "oci"})})
	if r := info(t, "containerd-shim-rkt-v1", stdinOf(t, sent)); r.Name != "io.containerd.rkt.v1" || r.Annotations["stage1"] != "oci" {
		t.Errorf("described itself as %v", r)
	}
	var stdout bytes.Buffer
	err := fakeProgram().call(t.Context(), []string{"containerd-shim-rkt-kvm-v1", "-info"}, stdinOf(t, sent), &stdout)
	if err == nil || !strings.Contains(err.Error(), "ask for the stage1 oci") || stdout.Len() > 0 {
		t.Errorf("another stage1 than the name pins: %v, stdout %q", err, stdout.Bytes())
	}
}

// requirements.md#O5
func TestInfoTakesATerminalAndAClosedStdinForNothing(t *testing.T) {
	master, slave, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	terminal, err := os.OpenFile(slave, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	closed := stdinOf(t, nil)
	closed.Close()
	for name, stdin := range map[string]*os.File{"terminal": terminal, "closed": closed} {
		if r := info(t, "containerd-shim-rkt-v1", stdin); r.Options != nil {
			t.Errorf("%s: options are %v", name, r.Options)
		}
	}
}

// requirements.md#O5
func TestInfoWorksWithoutRootAndWithoutNamespace(t *testing.T) {
	stdout, stderr, err := asNobody(t, nil, "-info")
	if err != nil || stderr != "" {
		t.Fatalf("%v, stderr %q", err, stderr)
	}
	var r types.RuntimeInfo
	if err := proto.Unmarshal([]byte(stdout), &r); err != nil || r.Name != "io.containerd.rkt.v1" {
		t.Errorf("answered %q: %v", stdout, err)
	}
}

// requirements.md#O5
func TestInfoOfAStage1ThatIsNotThereSaysSo(t *testing.T) {
	var stdout bytes.Buffer
	err := fakeProgram().call(t.Context(), []string{"containerd-shim-rkt-broken-v1", "-info"}, stdinOf(t, nil), &stdout)
	if err == nil || err.Error() != "stage1 broken: no such stage1" || stdout.Len() > 0 {
		t.Errorf("%v, stdout %q", err, stdout.Bytes())
	}
}
