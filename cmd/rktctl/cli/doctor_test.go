package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/doctor"
	"github.com/rkt/containerd-shim-rkt-v1/config"
)

// examined calls rktctl doctor on a node with a configuration, a data directory and
// containerd's configuration.
func examined(t *testing.T, file, data, containerd string, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	vars := map[string]string{config.FileVariable: file, config.DataDirVariable: data, "PATH": os.Getenv("PATH")}
	e := &Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(name string) string { return vars[name] }}
	code := Run(t.Context(), e, append([]string{"doctor", "--containerd-config", containerd}, args...))
	return answer{stdout.String(), stderr.String(), code}
}

func TestDoctorFindsWhatTheConfigurationAndTheImagesHaveWrong(t *testing.T) {
	bundled(t, "native")
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	file := configured(t, "[stage1.gone]", "path = '/no/such/image'")
	got := examined(t, file, data, "/no/such/config.toml", "--json")
	var findings []doctor.Finding
	if err := json.Unmarshal([]byte(got.stdout), &findings); err != nil || got.code != exitWrong {
		t.Fatalf("%+v: %v", got, err)
	}
	for _, want := range []doctor.Finding{
		{Area: "data directory", Severity: doctor.Error, Fix: "chmod go-w " + data},
		{Area: "stage1", Severity: doctor.Error, Text: "gone: ", Fix: "rktctl config check"},
		{Area: "stage1", Severity: doctor.OK, Text: "native"},
	} {
		found := false
		for _, f := range findings {
			found = found || f.Area == want.Area && f.Severity == want.Severity && strings.HasPrefix(f.Text, want.Text) && strings.HasPrefix(f.Fix, want.Fix)
		}
		if !found {
			t.Errorf("no %+v in %s", want, got.stdout)
		}
	}

	got = examined(t, configured(t, "[stage1.native]", "pth = 'x'"), data, "/no/such/config.toml")
	if got.code != exitWrong || !strings.Contains(got.stdout, "config.toml:2:1: unknown key") || !strings.Contains(got.stdout, "To be put right: ") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("%+v", got)
	}
}
