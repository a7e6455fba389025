package appimage

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// specOf returns the spec of an image with a configuration and with these files.
func specOf(t *testing.T, config ocispec.ImageConfig, c SpecConfig, files ...entry) (*specs.Spec, error) {
	t.Helper()
	b := newBuilder(t)
	i, err := opened(t, b.layout(b.image(config, nil, tarOf(t, files...))))
	if err != nil {
		t.Fatal(err)
	}
	return i.Spec(t.Context(), c)
}

var users = []entry{
	dir("etc"),
	file("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/home/alice:/bin/sh\n"),
	file("etc/group", "root:x:0:\nstaff:x:50:alice,root\nalice:x:1001:\n"),
}

func TestTheConfigurationOfAnImageBecomesASpec(t *testing.T) {
	requireRoot(t)
	config := ocispec.ImageConfig{
		Entrypoint: []string{"/entry"}, Cmd: []string{"a", "b"}, Env: []string{"PATH=/bin", "A=1"}, WorkingDir: "/work",
		User: "alice", StopSignal: "SIGINT", Volumes: map[string]struct{}{"/data": {}, "/cache": {}},
	}
	b := newBuilder(t)
	i, err := opened(t, b.layout(b.image(config, nil, tarOf(t, users...))))
	if err != nil {
		t.Fatal(err)
	}
	s, err := i.Spec(t.Context(), SpecConfig{ID: "a-1", Options: []oci.SpecOpts{oci.WithHostname("pod"), oci.WithEnv([]string{"A=2"}), oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})}})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Process
	if got := strings.Join(p.Args, " ") + " " + strings.Join(p.Env, " ") + " " + p.Cwd + " " + s.Hostname; got != "/entry a b PATH=/bin A=2 /work pod" {
		t.Error(got)
	}
	if p.User.UID != 1000 || p.User.GID != 1001 || !slices.Equal(p.User.AdditionalGids, []uint32{1001, 50}) {
		t.Errorf("%+v", p.User)
	}
	if s.Root.Path != "rootfs" || s.Linux.CgroupsPath != "/rkt/a-1" || !p.NoNewPrivileges {
		t.Errorf("%+v %s", s.Root, s.Linux.CgroupsPath)
	}
	if s.Linux.Seccomp == nil || !slices.ContainsFunc(s.Linux.Seccomp.Syscalls, func(c specs.LinuxSyscall) bool { return slices.Contains(c.Names, "process_vm_readv") }) {
		t.Error("the filter of system calls does not follow the capabilities")
	}
	if i.StopSignal() != "SIGINT" {
		t.Error(i.StopSignal())
	}
	if got := i.MountPoints(); len(got) != 2 || got[0].Path != "/cache" || got[1].Path != "/data" {
		t.Errorf("%+v", got)
	}
}

func TestACallerReplacesTheProgramOfAnImage(t *testing.T) {
	requireRoot(t)
	config := ocispec.ImageConfig{Entrypoint: []string{"/entry"}, Cmd: []string{"a"}}
	for want, c := range map[string]SpecConfig{
		"/entry a":     {},
		"/entry x y":   {Args: []string{"x", "y"}},
		"/other":       {Exec: []string{"/other"}},
		"/other -v, x": {Exec: []string{"/other", "-v,"}, Args: []string{"x"}},
	} {
		c.ID, c.Unconfined = "a", true
		s, err := specOf(t, config, c)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Process.Args, " "); got != want || s.Linux.Seccomp != nil {
			t.Errorf("%s and not %s", got, want)
		}
	}
	if _, err := specOf(t, ocispec.ImageConfig{}, SpecConfig{ID: "a"}); err == nil || !strings.Contains(err.Error(), "names a program") {
		t.Errorf("an image without a program: %v", err)
	}
}

// The host has a user of this name, and the image has not.
func TestUsersAreReadFromTheImageAlone(t *testing.T) {
	requireRoot(t)
	for name, files := range map[string][]entry{
		"no file":                 nil,
		"an absolute link":        {dir("etc"), symlink("etc/passwd", "/../../../../../../../../../../../etc/passwd")},
		"a relative link":         {dir("etc"), symlink("etc/passwd", "../../../../../../../../../../../../../../etc/passwd")},
		"a link to the directory": {symlink("etc", "../../../../../../../../../../../../../../etc")},
		"a link to the process":   {dir("etc"), symlink("etc/passwd", "/proc/1/root/etc/passwd")},
		"a directory":             {dir("etc"), dir("etc/passwd")},
		"a link to itself":        {dir("etc"), symlink("etc/passwd", "passwd")},
		"a device without an end": {dir("etc"), node("etc/passwd", '3', 1, 5)},
		"a fifo":                  {dir("etc"), node("etc/passwd", '6', 0, 0)},
		"no lines":                {dir("etc"), file("etc/passwd", strings.Repeat("x", 5<<20))},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := specOf(t, ocispec.ImageConfig{Cmd: []string{"/x"}, User: "daemon"}, SpecConfig{ID: "a"}, files...)
			if err == nil {
				t.Errorf("the user is %+v", s.Process.User)
			}
		})
	}
	inside := []entry{dir("usr"), file("usr/passwd", "daemon:x:77:78::/:/x\n"), dir("etc"), symlink("etc/passwd", "/usr/passwd")}
	s, err := specOf(t, ocispec.ImageConfig{Cmd: []string{"/x"}, User: "daemon"}, SpecConfig{ID: "a"}, inside...)
	if err != nil || s.Process.User.UID != 77 || s.Process.User.GID != 78 {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add("alice:staff", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n", "staff:x:50:alice\n")
	f.Add("4294967296", "a:b", "::::\n:")
	f.Add("-1:1", "x:x:-1:99999999999999999999::\n", "x:x:-1:x\n")
	f.Fuzz(func(t *testing.T, user, passwd, group string) {
		requireRoot(t)
		s, err := specOf(t, ocispec.ImageConfig{Cmd: []string{"/x"}, User: user}, SpecConfig{ID: "a"},
			dir("etc"), file("etc/passwd", passwd), file("etc/group", group))
		if err == nil && (s.Process.User.UID > 1<<31 || s.Process.User.GID > 1<<31) {
			t.Errorf("%+v", s.Process.User)
		}
	})
}
