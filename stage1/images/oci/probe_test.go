package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// probed returns the image with the features that it reports if its list of
// runtimes has these lines.
func probed(t *testing.T, runtimes string) (*image.Image, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the tree store needs root")
	}
	dir := imageDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "rootfs/runtimes"), []byte(runtimes+"\n"), 0o644))
	store, err := image.OpenStore(t.TempDir())
	must(t, err)
	i, err := store.Image(t.Context(), dir, "")
	must(t, err)
	with, _, err := stage1.Probe(t.Context(), store, i, "oci", children)
	return with, err
}

// saying returns a runtime that prints a text as its features.
func saying(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runc")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nfor last; do :; done; [ \"$last\" = features ] && cat <<'.'\n%s\n.\n", text), 0o755))
	return path
}

// runcSays returns a shortened form of the features that a version of runc prints.
func runcSays(version, more string) string {
	return `{
	"ociVersionMin": "1.0.0", "hooks": ["prestart", "poststart", "poststop"],
	"linux": {"cgroup": {"v1": true, "systemd": true}, "intelRdt": {"enabled": true}` + more + `},
	"annotations": {"org.opencontainers.runc.version": "` + version + `"}
}`
}

func TestTheFieldsFollowTheVersionOfRunc(t *testing.T) {
	static, err := probed(t, "no-such-runtime")
	if err == nil || !strings.Contains(err.Error(), "install runc") {
		t.Fatalf("without a runtime: %v", err)
	}
	base, _ := static.Fields()
	since2 := []string{"/domainname", "/process/scheduler", "/process/ioPriority", "/linux/personality", "/linux/timeOffsets", "/linux/seccomp/flags"}
	idmap := []string{"/mounts/*/uidMappings", "/mounts/*/gidMappings"}
	for version, c := range map[string]struct {
		more string
		adds []string
	}{
		"1.1.5+ds1":  {"", nil},
		"1.1.15":     {"", nil},
		"1.2.0-rc.1": {`, "mountExtensions": {"idmap": {"enabled": true}}`, slices.Concat(since2, idmap)},
		"1.2.9":      {`, "mountExtensions": {"idmap": {"enabled": false}}`, since2},
		"1.3.0":      {"", slices.Concat(since2, []string{"/process/execCPUAffinity"})},
		"1.10.1": {
			`, "netDevices": {"enabled": true}, "memoryPolicy": {"modes": ["MPOL_BIND"]}, "mountExtensions": {"idmap": {"enabled": true}}`,
			slices.Concat(since2, []string{"/process/execCPUAffinity"}, idmap, []string{"/linux/netDevices", "/linux/memoryPolicy"}),
		},
	} {
		i, err := probed(t, saying(t, runcSays(version, c.more)))
		must(t, err)
		if got, _ := i.Fields(); !slices.Equal(got, slices.Concat(base, c.adds)) {
			t.Errorf("%s: %q, want in addition %q", version, got[min(len(base), len(got)):], c.adds)
		}
		if c.adds == nil {
			continue // as the document
		}
		var oci struct {
			Hooks []string
			Linux map[string]any
		}
		must(t, json.Unmarshal(i.OCIFeatures(), &oci))
		if !slices.Equal(oci.Hooks, []string{"prestart", "poststop"}) || !reflect.DeepEqual(oci.Linux["cgroup"], map[string]any{"v1": true, "v2": true}) ||
			!reflect.DeepEqual(oci.Linux["intelRdt"], map[string]any{"enabled": false}) {
			t.Errorf("%s: %+v", version, oci)
		}
	}
}

// crunSays returns a crun that prints the libraries of its build, and a text as its features.
func crunSays(t *testing.T, version, libraries, features string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crun")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `#!/bin/sh
case $* in
--version) printf 'crun version %s\nspec: 1.0.0\n%s\n' ;;
features) [ -n '%s' ] && echo '%[3]s' ;;
esac
`, version, libraries, features), 0o755))
	return path
}

func TestTheFieldsFollowTheBuildOfCrun(t *testing.T) {
	static, _ := probed(t, "no-such-runtime")
	base, _ := static.Fields()
	base = append(slices.Clone(base), "/domainname", "/linux/personality")
	without := func(prefixes ...string) []string {
		if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
			prefixes = append(prefixes, "/linux/mountLabel")
		}
		return slices.DeleteFunc(slices.Clone(base), func(f string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f, p) })
		})
	}
	const all = "+SYSTEMD +SELINUX +APPARMOR +CAP +SECCOMP +EBPF +YAJL"
	for _, c := range []struct {
		version, libraries, features string
		want                         []string
	}{
		{"1.8.1", all, "", without()},
		{"1.8.1", "+SYSTEMD -SELINUX +CAP +YAJL", "", without("/process/selinuxLabel", "/linux/mountLabel", "/process/apparmorProfile", "/linux/seccomp")},
		{"1.8.1", "+SELINUX +APPARMOR +SECCOMP", "", without("/process/capabilities")},
		{"1.20", all, `{"hooks":["prestart","poststart"],"linux":{"mountExtensions":{"idmap":{"enabled":true}}},"annotations":{"run.oci.crun.version":"1.20"}}`,
			append(without(), "/mounts/*/uidMappings", "/mounts/*/gidMappings")},
	} {
		i, err := probed(t, crunSays(t, c.version, c.libraries, c.features))
		must(t, err)
		if got, _ := i.Fields(); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.version, c.libraries, got, c.want)
		}
		var oci struct {
			Hooks []string
			Linux struct{ Seccomp, Selinux struct{ Enabled bool } }
		}
		must(t, json.Unmarshal(i.OCIFeatures(), &oci))
		if slices.Contains(oci.Hooks, "poststart") || c.features == "" && (oci.Linux.Seccomp.Enabled != strings.Contains(c.libraries, "+SECCOMP") ||
			oci.Linux.Selinux.Enabled != strings.Contains(c.libraries, "+SELINUX")) {
			t.Errorf("%s %s: %+v", c.version, c.libraries, oci)
		}
	}
}

func TestOfRunscTheFieldsAreDeclaredThatItHonours(t *testing.T) {
	static, _ := probed(t, "no-such-runtime")
	base, _ := static.Fields()
	ignored := []string{"/process/user/umask", "/process/oomScoreAdj", "/process/apparmorProfile", "/hooks/startContainer",
		"/linux/sysctl", "/linux/seccomp", "/linux/maskedPaths", "/linux/readonlyPaths", "/linux/mountLabel"}
	base = slices.DeleteFunc(slices.Clone(base), func(f string) bool {
		return slices.ContainsFunc(ignored, func(p string) bool { return f == p || strings.HasPrefix(f, p+"/") })
	})
	for features, more := range map[string][]string{
		"": nil,
		`{"hooks":["startContainer","poststop"],"linux":{"seccomp":{"enabled":true},"mountExtensions":{"idmap":{"enabled":true}}}}`: {"/mounts/*/uidMappings", "/mounts/*/gidMappings"},
	} {
		runsc := filepath.Join(t.TempDir(), "runsc")
		must(t, os.Rename(saying(t, features), runsc))
		i, err := probed(t, runsc+" --platform=systrap")
		must(t, err)
		if got, _ := i.Fields(); !slices.Equal(got, append(slices.Clone(base), more...)) {
			t.Errorf("%q: %q", features, got)
		}
		if text := string(i.OCIFeatures()); strings.Contains(text, "startContainer") || !strings.Contains(text, `"seccomp":{"enabled":false`) {
			t.Errorf("%q: %s", features, text)
		}
	}
}

func TestOfOtherRuntimesTheDocumentHolds(t *testing.T) {
	static, _ := probed(t, "no-such-runtime")
	base, _ := static.Fields()
	for name, text := range map[string]string{
		"another":     `{"ociVersionMax":"1.2.0","annotations":{"org.example.version":"1.20"}}`,
		"no features": "",
		"runc 1.0":    runcSays("1.0.3", ""),
		"runc 2":      runcSays("2.0.0", ""),
	} {
		i, err := probed(t, saying(t, text))
		if got, _ := i.Fields(); !errdefs.IsNotImplemented(err) || !slices.Equal(got, base) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// features.json describes Debian's runc.
func TestTheAnswerForRunc11IsTheDocument(t *testing.T) {
	i, err := probed(t, "runc")
	must(t, err)
	if fields, _ := i.Fields(); slices.Contains(fields, "/domainname") {
		t.Skip("this machine has a later runc")
	}
	var own, said map[string]any
	text, err := os.ReadFile("features.json")
	must(t, err)
	var document struct {
		OCI    map[string]any `json:"oci"`
		Fields []string       `json:"fields"`
	}
	must(t, json.Unmarshal(text, &document))
	own = document.OCI
	must(t, json.Unmarshal(i.OCIFeatures(), &said))
	if fields, _ := i.Fields(); !reflect.DeepEqual(own, said) || !slices.Equal(fields, document.Fields) {
		t.Errorf("it answers\n\t%v %q, want\n\t%v", said, fields, own)
	}
}

func TestTheIdmapOptionIsTakenIfTheRuntimeHasIt(t *testing.T) {
	argv := filepath.Join(t.TempDir(), "argv")
	before(t, `case "$*" in
features) echo '{"idmap": {"enabled": true}}'; exit 0 ;;
*) echo "$*" >>`+argv+` ;;
esac`)
	p := startPod(t)
	a := p.app("web", nil, "true")
	a.call.Request.Spec = abi.RawJSON(`{"mounts":[{"options":["idmap"]}]}`)
	a.add() // the option is in the request alone: Debian's runc does not know it
	if text, err := os.ReadFile(argv); err != nil || !strings.Contains(string(text), " create ") {
		t.Errorf("runc is called with %q, %v", text, err)
	}
	p.expect(0, abi.AppStop, "web")
	p.expect(0, abi.AppRm, "web")
	a.ends(t, 137)
	must(t, a.group.Remove(p.patience))
}
