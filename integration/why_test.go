package integration

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// whyCases are specs that are refused for different reasons, and others that are not.
func whyCases() map[string]struct {
	config  string
	change  oci.SpecOpts
	refused bool
} {
	change := func(f func(s *specs.Spec)) oci.SpecOpts {
		return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
			f(s)
			return nil
		}
	}
	annotated := func(key, value string) oci.SpecOpts {
		return change(func(s *specs.Spec) { s.Annotations = map[string]string{key: value} })
	}
	limit := func(n int64) *int64 { return &n }
	const allowed = "[stage1.oci]\npods_may_ask = true\n"
	return map[string]struct {
		config  string
		change  oci.SpecOpts
		refused bool
	}{
		"as it is":             {"", change(func(*specs.Spec) {}), false},
		"another stage1":       {allowed, annotated(stage1Annotation, "oci"), false},
		"a forbidden stage1":   {"", annotated(stage1Annotation, "oci"), true},
		"a misspelt stage1":    {allowed, annotated(stage1Annotation, "ocy"), true},
		"a misspelt key":       {"", annotated("io.containerd.rkt.v1/stag1", "oci"), true},
		"an undeclared field":  {"", change(func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "x"} }), true},
		"two of them":          {"", change(func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "x"}; s.VM = &specs.VM{} }), true},
		"for another platform": {"", change(func(s *specs.Spec) { s.Windows = &specs.Windows{CredentialSpec: "x"} }), true},
		"a limit":              {"", change(func(s *specs.Spec) { s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: limit(64 << 20)} }), false},
		"a limit of zero":      {"", change(func(s *specs.Spec) { s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: limit(0)} }), false},
		"a limit above swap": {"", change(func(s *specs.Spec) {
			s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: limit(64 << 20), Swap: limit(32 << 20)}
		}), true},
		"a cgroup that is none": {"", change(func(s *specs.Spec) { s.Linux.CgroupsPath = "/" }), true},
		"a version":             {"", change(func(s *specs.Spec) { s.Version = "2.0.0" }), true},
	}
}

// The verdict about a config.json is that of Create, with the same words, and a start that
// has failed is remembered without the container's secrets.
func TestWhyAgreesWithCreate(t *testing.T) {
	const canary = "CANARY-of-the-environment"
	eachNode(t, "why", func(t *testing.T, n *node) {
		for name, c := range whyCases() {
			n.says("%s", c.config)
			container := n.container(t, []string{"testprog", "sleep", "1000", canary}, oci.WithEnv([]string{"TOKEN=" + canary}), c.change)
			info, err := container.Info(n.context(t))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "config.json")
			write(t, file, string(info.Spec.GetValue()))
			out, whyErr := n.rktctl("why", "--output", "json", file)
			var v struct {
				Error   string
				Refused []struct{ Field string }
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || (whyErr != nil) != (v.Error != "") {
				t.Fatalf("%s: %v, %v: %s", name, whyErr, err, out)
			}
			task, err := container.NewTask(n.context(t), cio.NullIO)
			if (err != nil) != (v.Error != "") || c.refused != (err != nil) {
				t.Errorf("%s: Create says %v, and why says %s", name, err, out)
			}
			if err != nil {
				n.expectExplained(t, name, container.ID(), v.Error, err)
				continue
			}
			exited := n.wait(t, task)
			if story, err := n.rktctl("why", container.ID()); err != nil || !strings.Contains(story, "app/add") || strings.Contains(story, canary) {
				t.Errorf("%s: %v: %s", name, err, story)
			}
			kill(t, n.context(t), task, syscall.SIGKILL)
			expectExit(t, exited, 137)
			n.drop(t, task)
		}
		files, err := filepath.Glob(filepath.Join(dataDir(n.daemon.Dir()), "failed", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("records of failed starts: %q, %v", files, err)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), canary) {
				t.Errorf("%v: a secret in %s", err, text)
			}
		}
	})
}

// expectExplained checks that a start that has failed has the error of the verdict, and that
// why knows it.
func (n *node) expectExplained(t *testing.T, name, id, verdict string, err error) {
	t.Helper()
	core := verdict[strings.LastIndex(verdict, "config.json: ")+1:] // without the ids and paths before it
	core = strings.TrimPrefix(core, "onfig.json: ")
	if core, _, _ = strings.Cut(core, ": not implemented"); !strings.Contains(err.Error(), core) {
		t.Errorf("%s: Create says %v, and why says %s", name, err, verdict)
	}
	story, storyErr := n.rktctl("why", id)
	if storyErr != nil || !strings.Contains(story, "The start of "+id+" failed") || !strings.Contains(story, core) {
		t.Errorf("%s: %v: %s", name, storyErr, story)
	}
}
