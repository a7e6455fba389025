package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seccomp"
)

// declaration is features.json, as section 9 of docs/stage1-abi.md has it.
type declaration struct {
	OCI    features.Features `json:"oci"`
	Fields []string          `json:"fields"`
}

func readFeatures(t *testing.T) declaration {
	t.Helper()
	b, err := os.ReadFile("../features.json")
	must(t, err)
	var d declaration
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	must(t, dec.Decode(&d))
	return d
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func same(t *testing.T, what string, declared, honoured []string) {
	t.Helper()
	if !slices.Equal(sorted(declared), sorted(honoured)) {
		t.Errorf("%s: declared %v, honoured %v", what, sorted(declared), sorted(honoured))
	}
}

// accepted returns those values whose profiles the compiler accepts.
func accepted[T ~string](profile func(T) *specs.LinuxSeccomp, values ...T) (taken []string) {
	for _, v := range values {
		if _, _, err := seccomp.Compile(profile(v)); err == nil {
			taken = append(taken, string(v))
		}
	}
	return taken
}

// filteredArches returns the machine's own architecture and those whose listing in a
// profile changes the program.
func filteredArches(t *testing.T) []string {
	t.Helper()
	filter := func(arches ...specs.Arch) []unix.SockFilter {
		prog, _, err := seccomp.Compile(&specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, Architectures: arches,
			Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActAllow}},
		})
		must(t, err)
		return prog
	}
	arches := []string{map[string]string{"amd64": string(specs.ArchX86_64), "arm64": string(specs.ArchAARCH64)}[runtime.GOARCH]}
	for _, a := range []specs.Arch{
		specs.ArchX86_64, specs.ArchX86, specs.ArchX32, specs.ArchAARCH64, specs.ArchARM, specs.ArchPPC64LE, specs.ArchS390X, specs.ArchRISCV64,
	} {
		if !slices.Equal(filter(a), filter()) {
			arches = append(arches, string(a))
		}
	}
	return arches
}

func TestFeaturesDeclareWhatTheCodeKnows(t *testing.T) {
	oci := readFeatures(t).OCI
	options := newOptionParser()
	var recursive []string
	for name := range options.flags {
		if _, ok := options.recursive("r" + name); ok {
			recursive = append(recursive, "r"+name)
		}
	}
	same(t, "mount options", oci.MountOptions, slices.Concat(
		slices.Collect(maps.Keys(options.flags)), slices.Collect(maps.Keys(options.propagation)),
		recursive, slices.Collect(maps.Keys(options.own))))
	same(t, "capabilities", oci.Linux.Capabilities, abi.Capabilities())
	s := oci.Linux.Seccomp
	same(t, "seccomp actions", s.Actions, accepted(func(a specs.LinuxSeccompAction) *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, ListenerPath: "/x", Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: a}}}
	}, specs.ActKill, specs.ActKillProcess, specs.ActKillThread, specs.ActTrap, specs.ActErrno, specs.ActTrace, specs.ActAllow, specs.ActLog, specs.ActNotify))
	same(t, "seccomp operators", s.Operators, seccomp.Operators())
	same(t, "seccomp flags", s.KnownFlags, accepted(func(f specs.LinuxSeccompFlag) *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Flags: []specs.LinuxSeccompFlag{f}}
	}, "SECCOMP_FILTER_FLAG_TSYNC", specs.LinuxSeccompFlagLog, specs.LinuxSeccompFlagSpecAllow, specs.LinuxSeccompFlagWaitKillableRecv, "SECCOMP_FILTER_FLAG_NEW_LISTENER"))
	for _, arch := range filteredArches(t) {
		if !slices.Contains(s.Archs, arch) {
			t.Errorf("seccomp architecture %s is not declared", arch)
		}
	}
	same(t, "memory policies", oci.Linux.MemoryPolicy.Modes, words(memoryModes()))
	same(t, "flags of memory policies", oci.Linux.MemoryPolicy.Flags, words(memoryFlags()))
	if oci.OCIVersionMax != specs.Version {
		t.Errorf("ociVersionMax is %s, the spec in use is %s", oci.OCIVersionMax, specs.Version)
	}
	for _, n := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.UserNamespace, specs.CgroupNamespace, specs.TimeNamespace} {
		l := &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: n}}}
		if n != specs.MountNamespace {
			l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.MountNamespace})
		}
		_, err := parseNamespaces(l)
		var refused *serve.Failure
		if honoured := !errors.As(err, &refused); honoured != slices.Contains(oci.Linux.Namespaces, string(n)) {
			t.Errorf("namespace %s: declared %v, honoured %v", n, !honoured, honoured)
		}
	}
}

func words[T ~string](values map[T]int) (list []string) {
	for v := range values {
		list = append(list, string(v))
	}
	return list
}

// stage0 are the fields that docs/stage1-abi.md says stage 0 covers.
func stage0() []string {
	return []string{"/ociVersion", "/annotations", "/linux/cgroupsPath", "/linux/resources", "/hooks/poststop"}
}

// refusals maps each field that this stage1 refuses to a function that sets it in a spec.
func refusals() map[string]func(*specs.Spec) {
	return map[string]func(*specs.Spec){
		"/solaris":               func(s *specs.Spec) { s.Solaris = &specs.Solaris{} },
		"/windows":               func(s *specs.Spec) { s.Windows = &specs.Windows{} },
		"/vm":                    func(s *specs.Spec) { s.VM = &specs.VM{} },
		"/zos":                   func(s *specs.Spec) { s.ZOS = &specs.ZOS{} },
		"/freebsd":               func(s *specs.Spec) { s.FreeBSD = &specs.FreeBSD{} },
		"/process/commandLine":   func(s *specs.Spec) { s.Process.CommandLine = "x" },
		"/process/user/username": func(s *specs.Spec) { s.Process.User.Username = "x" },
		"/linux/intelRdt":        func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{} },
		"/linux/personality/flags": func(s *specs.Spec) {
			s.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux, Flags: []specs.LinuxPersonalityFlag{"x"}}
		},
	}
}

func TestEveryFieldOfTheSpecIsDeclaredOrRefused(t *testing.T) {
	known := make(map[string]bool)
	for _, list := range [][]string{readFeatures(t).Fields, stage0(), slices.Collect(maps.Keys(refusals()))} {
		for _, field := range list {
			if known[field] {
				t.Errorf("%s is in two lists", field)
			}
			known[field] = true
		}
	}
	seen := make(map[string]bool)
	walkFields(t, reflect.TypeFor[specs.Spec](), "", known, seen)
	for field := range known {
		if !seen[field] {
			t.Errorf("%s is not a field of the spec", field)
		}
	}
}

// walkFields marks the pointers of known that lead to fields of typ, whose own pointer
// is prefix, as seen. A field is an error if known has neither it nor all fields below it.
func walkFields(t *testing.T, typ reflect.Type, prefix string, known, seen map[string]bool) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		t.Errorf("%s is neither declared, nor stage 0's, nor refused", prefix)
		return
	}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		field := prefix + "/" + name
		if known[field] {
			seen[field] = true
			continue
		}
		walkFields(t, typ.Field(i).Type, field, known, seen)
	}
}

func TestRefusedFieldsAreRefusedByName(t *testing.T) {
	for field, set := range refusals() {
		spec := defaultSpec([]string{"true"})
		set(spec)
		_, err := PrepareApp(AppRequest{Request: abi.Request{Rootfs: "/"}, Spec: spec})
		var refused *serve.Failure
		if !errors.As(err, &refused) || refused.Code != abi.ExitNotImplemented {
			t.Errorf("%s: %v", field, err)
			continue
		}
		contains(t, refused.Text, strings.ReplaceAll(field[1:], "/", "."))
	}
}
