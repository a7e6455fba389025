package integration

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestThePodManifestSaysWhatTheSpecAsksFor(t *testing.T) { // trap 6, 12; checklist 7, 8; section 10
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f"), "volume\n")
		n.run(t, []string{"--rm", "--cwd", "/tmp", "--user", "1000:1001", "--env", "A=a b'c\"$d", "--read-only=false",
			"--mount", "type=bind,src=" + dir + ",dst=/vol/ume,options=rbind:ro", "--memory-limit", "67108864", "--cap-add", "CAP_SYS_TIME"},
			n.id(), "sh", "-c", `cat /vol/ume/f; touch /vol/ume/g 2>/dev/null && echo writable; pwd; id -u; id -g; echo "$A"`).
			must(t).mustSay(t, "volume\n/tmp\n1000\n1001\na b'c\"$d\n")
		m := n.podManifest(t)
		if len(m.Apps) != 1 {
			t.Fatalf("apps of the manifest: %v", m.Apps)
		}
		app := m.Apps[0].App
		if app.User != "1000" || app.Group != "1001" || app.WorkingDirectory != "/tmp" {
			t.Errorf("user %q, group %q, directory %q", app.User, app.Group, app.WorkingDirectory)
		}
		for name, want := range map[string]string{
			"os/linux/seccomp-retain-set":      "@appc.io/all",
			"os/linux/capabilities-retain-set": "CAP_SYS_TIME",
			"os/linux/no-new-privileges":       "true",
			"resource/memory":                  "67108864",
		} {
			if got := m.isolator(name); !strings.Contains(got, want) {
				t.Errorf("isolator %s: %s, want %s", name, got, want)
			}
		}
		env := read(t, filepath.Join(n.fixture.log, "env"))
		for _, want := range []string{"A=a b'c\"$d\n", "PATH=", "HOME=", "AC_APP_NAME=" + m.Apps[0].Name + "\n"} {
			if !strings.Contains(env, want) {
				t.Errorf("rkt/env has no %q:\n%s", want, env)
			}
		}
	})
}

// plain are fields that the containers of these tests always have and that appc cannot express.
var plain = []string{"/linux/namespaces", "/linux/maskedPaths", "/linux/readonlyPaths", "/process/rlimits", "/mounts/*/options"}

// wish is a field that a spec may have.
type wish struct {
	field string // the name by which operators accept it
	opts  oci.SpecOpts
}

// strange is a mount that is neither a volume nor a bind mount of the host.
var strange = wish{"/mounts/*/type", changed(func(s *specs.Spec) {
	s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "overlay", Source: "overlay", Options: []string{"lowerdir=/"}})
})}

// unsaid are further fields that appc cannot express.
var unsaid = []wish{
	{"/hooks", changed(func(s *specs.Spec) { s.Hooks = &specs.Hooks{Prestart: []specs.Hook{hook("true")}} })},
	{"/linux/personality", changed(func(s *specs.Spec) { s.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32} })},
	{"/linux/seccomp", changed(func(s *specs.Spec) {
		s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"personality"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{{Value: 1, Op: specs.OpEqualTo}}},
		}}
	})},
	strange,
}

func changed(change func(*specs.Spec)) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		change(s)
		return nil
	}
}

func TestWhatAppcCannotSayIsRefusedByName(t *testing.T) { // section 10: no representation
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		for _, u := range unsaid {
			n.accepts(plain)
			n.refusesByName(t, u)
			n.accepts(append(slices.Clone(plain), u.field))
			if err := n.creates(t, u); err != nil {
				t.Errorf("%s was accepted by the operator: %v", u.field, err)
			}
		}
		n.accepts([]string{"appc"})
		n.expectNothingLeft(t)
	})
}

// creates makes a container whose spec has a field, and removes it.
func (n *node) creates(t *testing.T, u wish) error {
	t.Helper()
	ctx := n.context(t)
	container := n.container(t, []string{"true"}, u.opts)
	task, err := container.NewTask(ctx, cio.NullIO)
	if err == nil {
		deleteTask(t, ctx, task, client.WithProcessKill)
	}
	must(t, container.Delete(ctx, client.WithSnapshotCleanup))
	return err
}

// refusesByName expects that a spec with a field is refused with the field's name.
func (n *node) refusesByName(t *testing.T, u wish) {
	t.Helper()
	err := n.creates(t, u)
	if err == nil || !regexp.MustCompile(strings.ReplaceAll(u.field, "*", "[0-9]+")).MatchString(err.Error()) {
		t.Errorf("%s: %v, want a refusal with its name", u.field, err)
	}
}

// accepts has the operator accept fields that the image does not honour.
func (n *rktNode) accepts(fields []string) {
	n.says("[stage1.%s]\npath = %q\naccept = [%s]\n", n.fixture.name(), n.dir, `"`+strings.Join(fields, `", "`)+`"`)
}

func TestAProgramThatIsNotThereFailsCreate(t *testing.T) { // trap 5
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		n.refusesMissingPrograms(t)
		for program, words := range map[string]string{"/etc/passwd": "permission denied", "/bin": "is a directory"} {
			n.refusesProgram(t, program, words)
		}
		n.expectNothingLeft(t)
	})
}

func TestAPodWhoseRunFailsSaysSo(t *testing.T) { // checklist 5: early exit
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		fails := filepath.Join(n.dir, "rootfs/fails")
		write(t, fails, "")
		r := n.run(t, []string{"--rm"}, n.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, "run: it was asked to fail") {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
		must(t, os.Remove(fails))
		n.run(t, []string{"--rm"}, n.id(), "true").must(t)
		n.expectNothingLeft(t)
	})
}

func TestTheEndOfRunIsThatOfTheContainer(t *testing.T) { // checklist 9; trap 4
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		n.endsWithItsPod(t)
		n.expectNothingLeft(t)
	})
}
