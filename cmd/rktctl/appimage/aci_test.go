package appimage

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// aciOf writes an ACI: further fields of its manifest, fields of its app, and files.
func aciOf(t testing.TB, fields, app string, files ...entry) string {
	t.Helper()
	system, machine, err := types.ToAppcOSArch(runtime.GOOS, runtime.GOARCH, "")
	if err != nil {
		t.Skip(err)
	}
	manifest := fmt.Sprintf(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/app",
		"labels": [{"name": "version", "value": "1.2"}, {"name": "os", "value": %q}, {"name": "arch", "value": %q}]`, system, machine)
	if fields != "" {
		manifest += ", " + fields
	}
	if app != "" {
		manifest += `, "app": {"exec": ["/bin/app", "-v"], ` + app + `}`
	}
	entries := []entry{file("manifest", manifest+"}"), dir("rootfs")}
	return write(t, "app.aci", gzipped(t, tarOf(t, append(entries, files...)...)))
}

// users of an ACI.
var acUsers = []entry{
	dir("rootfs/etc"), file("rootfs/etc/passwd", "alice:x:1000:7:::\n"), file("rootfs/etc/group", "staff:x:50:\n"),
	file("rootfs/owned", "x").with(0o644, 33), hardlink("rootfs/linked", "rootfs/owned").with(0o644, 33),
}

func acSpec(t *testing.T, app string) (*specs.Spec, error) {
	t.Helper()
	i, err := opened(t, aciOf(t, "", app, acUsers...))
	if err != nil {
		return nil, err
	}
	return i.Spec(t.Context(), SpecConfig{ID: "a"})
}

func TestAnACIBecomesAnApp(t *testing.T) {
	requireRoot(t)
	i, err := opened(t, aciOf(t, `"annotations": [{"name": "homepage", "value": "https://example.com"}]`, `"user": "alice", "group": "staff", "supplementaryGIDs": [9, 50],
		"workingDirectory": "/work", "environment": [{"name": "A", "value": "1"}],
		"mountPoints": [{"name": "data", "path": "/data"}, {"name": "conf", "path": "/conf", "readOnly": true}],
		"isolators": [
			{"name": "os/linux/capabilities-retain-set", "value": {"set": ["CAP_KILL", "CAP_CHOWN"]}},
			{"name": "os/linux/oom-score-adj", "value": 100}, {"name": "os/linux/cpu-shares", "value": 512},
			{"name": "resource/memory", "value": {"request": "1M", "limit": "64Mi"}},
			{"name": "resource/cpu", "value": {"limit": "500m"}},
			{"name": "os/linux/seccomp-remove-set", "value": {"set": ["reboot"], "errno": "EPERM"}}]`, acUsers...))
	if err != nil {
		t.Fatal(err)
	}
	s, err := i.Spec(t.Context(), SpecConfig{ID: "a", Args: []string{"more"}})
	if err != nil {
		t.Fatal(err)
	}
	p, r := s.Process, s.Linux.Resources
	if got := strings.Join(p.Args, " ") + " " + strings.Join(p.Env, " ") + " " + p.Cwd; got != "/bin/app -v more A=1 /work" {
		t.Error(got)
	}
	if p.User.UID != 1000 || p.User.GID != 50 || !slices.Equal(p.User.AdditionalGids, []uint32{50, 9}) {
		t.Errorf("%+v", p.User)
	}
	if got := p.Capabilities; !slices.Equal(got.Bounding, []string{"CAP_KILL", "CAP_CHOWN"}) || !slices.Equal(got.Effective, got.Bounding) || *p.OOMScoreAdj != 100 {
		t.Errorf("%+v", got)
	}
	if *r.Memory.Limit != 64<<20 || *r.CPU.Quota != 50_000 || *r.CPU.Period != 100_000 || *r.CPU.Shares != 512 {
		t.Errorf("%+v %+v", r.Memory, r.CPU)
	}
	if f := s.Linux.Seccomp; f == nil || len(f.Syscalls) != 1 || !slices.Equal(f.Syscalls[0].Names, []string{"reboot"}) {
		t.Errorf("%+v", f)
	}
	if got := i.MountPoints(); len(got) != 2 || got[0] != (MountPoint{"conf", "/conf", true}) || got[1] != (MountPoint{"data", "/data", false}) {
		t.Errorf("%+v", got)
	}
	if !strings.HasPrefix(i.Digest, "sha512-") || i.Labels()["homepage"] != "https://example.com" {
		t.Errorf("%s %v", i.Digest, i.Labels())
	}
	for name, want := range map[string]string{"owned": "x", "linked": "x"} {
		if got := text(t, i, name); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
	if _, err := os.Lstat(filepath.Join(i.Root(), "manifest")); err == nil {
		t.Error("the manifest is in the root file system")
	}
}

func TestIdentitiesAndPrivilegesOfACIsAreThoseOfAppc(t *testing.T) {
	requireRoot(t)
	for app, want := range map[string]func(*specs.Spec) bool{
		`"user": "0", "group": "0"`: func(s *specs.Spec) bool {
			return s.Process.User.UID == 0 && !s.Process.NoNewPrivileges && len(s.Process.Capabilities.Bounding) == 14 && len(s.Linux.Seccomp.Syscalls) > 2
		},
		`"user": "/owned", "group": "/owned"`: func(s *specs.Spec) bool { return s.Process.User.UID == 33 && s.Process.User.GID == 33 },
		`"user": "5", "group": "6", "isolators": [{"name": "os/linux/no-new-privileges", "value": true}]`: func(s *specs.Spec) bool {
			return s.Process.User.UID == 5 && s.Process.User.GID == 6 && s.Process.NoNewPrivileges
		},
		`"user": "0", "group": "0", "isolators": [{"name": "os/linux/capabilities-remove-set", "value": {"set": ["CAP_MKNOD"]}}]`: func(s *specs.Spec) bool {
			return len(s.Process.Capabilities.Bounding) == 13 && !slices.Contains(s.Process.Capabilities.Permitted, "CAP_MKNOD")
		},
		`"user": "0", "group": "0", "isolators": [{"name": "os/linux/seccomp-retain-set", "value": {"set": ["@appc.io/all"]}}]`: func(s *specs.Spec) bool { return s.Linux.Seccomp == nil },
		`"user": "0", "group": "0", "isolators": [{"name": "os/linux/seccomp-remove-set", "value": {"set": ["@appc.io/empty"]}}]`: func(s *specs.Spec) bool {
			return len(s.Linux.Seccomp.Syscalls) > 2
		},
		`"user": "0", "group": "0", "isolators": [{"name": "os/linux/selinux-context", "value": {"user": "u", "role": "r", "type": "t", "level": "s0"}}]`: func(s *specs.Spec) bool {
			return s.Process.SelinuxLabel == "u:r:t:s0"
		},
		`"user": "0", "group": "0", "isolators": [{"name": "os/unix/sysctl", "value": {"net.core.somaxconn": "99"}}]`: func(s *specs.Spec) bool {
			return s.Linux.Sysctl["net.core.somaxconn"] == "99"
		},
	} {
		if s, err := acSpec(t, app); err != nil || !want(s) {
			t.Errorf("%s: %v, %+v", app, err, s)
		}
	}
}

func TestPartsOfAnACIThatCannotBeEnforcedAreRefusedByName(t *testing.T) {
	requireRoot(t)
	for app, says := range map[string]string{
		`"user": "0", "group": "0", "isolators": [{"name": "resource/network-bandwidth", "value": {"default": true, "limit": "1G"}}]`: "isolator resource/network-bandwidth: it is not supported",
		`"user": "0", "group": "0", "isolators": [{"name": "example.com/own", "value": 1}]`:                                           "isolator example.com/own: it is not supported",
		`"user": "0", "group": "0", "eventHandlers": [{"name": "pre-start", "exec": ["/x"]}]`:                                         "eventHandlers",
		`"user": "0", "group": "0", "isolators": [{"name": "resource/memory"}]`:                                                       "an isolator has no value",
		`"user": "mallory", "group": "0"`:  "mallory",
		`"user": "0", "group": "/nowhere"`: "nowhere",
	} {
		if _, err := acSpec(t, app); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", app, err)
		}
	}
	needy := aciOf(t, `"dependencies": [{"imageName": "example.com/base"}]`, `"user": "0", "group": "0"`)
	if _, err := opened(t, needy); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "example.com/base") {
		t.Errorf("%v", err)
	}
	if _, err := opened(t, aciOf(t, `"labels": [{"name": "os", "value": "linux"}, {"name": "arch", "value": "armv7b"}]`, "")); !errdefs.IsNotFound(err) {
		t.Errorf("another machine: %v", err)
	}
}

func TestACIsThatAreWrongAreRefused(t *testing.T) {
	requireRoot(t)
	for name, files := range map[string][]entry{
		"a file elsewhere":          {file("elsewhere", "x")},
		"a name that leads out":     {file("rootfs/../../x", "x")},
		"a hard link to a manifest": {hardlink("rootfs/x", "manifest")},
		"a hard link that leads out": {
			hardlink("rootfs/x", "rootfs/../../x")},
	} {
		if i, err := opened(t, aciOf(t, "", "", files...)); err == nil {
			t.Errorf("%s: %s", name, names(t, i.Root()))
		}
	}
	o := newOutside(t)
	before := o.state()
	_, err := opened(t, aciOf(t, "", "", symlink("rootfs/l", o.dir), file("rootfs/l/secret", "x"), hardlink("rootfs/h", "rootfs/l/secret")))
	if after := o.state(); after != before {
		t.Errorf("%v: the host has changed: %s", err, after)
	}
}

func TestAPathWhitelistLeavesOutOtherFiles(t *testing.T) {
	requireRoot(t)
	i, err := opened(t, aciOf(t, `"pathWhitelist": ["/etc/passwd", "/bin"]`, "", append(acUsers, dir("rootfs/bin"), file("rootfs/bin/x", "x"))...))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, i.Root()) + "; " + names(t, filepath.Join(i.Root(), "etc")) + "; " + names(t, filepath.Join(i.Root(), "bin")); got != "bin etc; passwd; " {
		t.Error(got)
	}
}
