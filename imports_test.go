package shim_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rkt/containerd-shim-rkt-v1/"

// layers says which of our packages a package may import, longest prefix first
// among the keys. What is below a listed package counts as that package, and a
// package may always import what is below itself.
var layers = map[string][]string{
	"cmd/containerd-shim-rkt-v1": {"manager/early", "pod/bundlefile", "pod/removal"}, // executed for each container

	"cmd":                       {"manager", "shim", "stage1", "stage1/immutable", "stage1/rktabi", "stage1/image", "pod", "proc", "config"},
	"cmd/rktctl":                {"shim/debug", "pod/view", "pod/disk", "stage1", "pod/journal", "stage1/immutable", "stage1/rktabi", "abi", "stage1/image", "stage1/signature", "stage1/conformance", "proc", "config", "manager", "pod/cgroup", "pod"},
	"cmd/rktctl/appimage":       {"cmd/rktctl/containerd", "stage1/image", "stage1/images/podmanifest", "stage1/images/isolator", "pod/datadir", "proc"},
	"cmd/rktctl/containerd":     {"stage1/image"},
	"cmd/rktctl/local":          {"cmd/rktctl/appimage", "options", "pod/bundlefile", "pod/cgroup", "pod/datadir", "pod/disk", "pod/view", "proc", "sandbox", "wire"},
	"manager":                   {"options", "config", "proc", "abi", "wire"},
	"manager/early":             {"config/annotation", "proc"},
	"shim":                      {"pod", "proc", "options", "config", "sandbox", "abi", "wire"},
	"shim/debug":                {},
	"config":                    {"pod/spec"},
	"config/annotation":         {"pod/spec"},
	"options":                   {},
	"sandbox":                   {"wire"},
	"wire":                      {},
	"pod":                       {"proc", "abi"},
	"pod/disk":                  {"pod/bundlefile", "pod/cgroup", "pod/datadir", "pod/journal", "pod/removal", "pod/spec", "proc", "abi"},
	"pod/journal":               {"abi", "proc"},
	"pod/view":                  {"pod/disk", "pod/cgroup", "pod/journal", "proc", "abi"},
	"pod/bundlefile":            {},
	"pod/datadir":               {},
	"pod/removal":               {"pod/bundlefile", "proc"},
	"pod/spec":                  {"abi"},
	"proc":                      {}, // of others, golang.org/x/sys only
	"pod/cgroup":                {"proc", "abi"},
	"stage1":                    {"stage1/image", "stage1/fields", "stage1/console", "stage1/mount", "pod/journal", "pod", "proc", "abi"},
	"stage1/fields":             {"pod/spec"},
	"stage1/console":            {"proc"},
	"stage1/mount":              {},
	"stage1/immutable":          {"stage1", "stage1/image", "pod/journal", "pod", "proc", "abi"},
	"stage1/rktabi":             {"stage1", "stage1/mount", "stage1/immutable", "stage1/image", "pod/journal", "pod", "proc", "abi"},
	"stage1/image":              {"pod/datadir", "pod/spec", "proc", "abi"},
	"abi":                       {},
	"abi/serve":                 {"proc", "abi"},
	"stage1/conformance":        {"docs", "pod", "proc", "stage1", "stage1/image", "pod/journal", "abi"}, // and nothing of the shim imports it
	"stage1/signature":          {"config"},                                                              // and nothing of the shim imports it
	"docs":                      {},
	"internal/wait":             {},
	"internal/crash":            {"pod/cgroup", "proc", "abi"},
	"internal/bareboot":         {"proc", "stage1/images/kvm/machine"},
	"internal/nullshim":         {"manager", "shim", "pod", "proc", "config"},
	"stage1/images/podmanifest": {},
	"stage1/images/isolator":    {"stage1/images/podmanifest"},
	"stage1/images/rktfront":    {"proc", "abi", "stage1/images/native", "stage1/images/podmanifest", "stage1/images/isolator"},
	"stage1/images/native":      {"proc", "abi", "stage1/images/rktfront"},
	"stage1/images/fly":         {"proc", "stage1/images/podmanifest"},
	"stage1/images/nspawn":      {"proc", "abi", "stage1/images/native", "stage1/images/rktfront"},
	"stage1/images/kvm":         {"proc", "abi", "stage1/images/native"},
	"stage1/images/kvm/agent":   {"proc", "abi", "pod/cgroup", "stage1/images/kvm/channel", "stage1/images/kvm/network", "stage1/images/native"}, // in the guest it is a stage 0
	"stage1/images/kvm/machine": {"proc"},
	"stage1/images/kvm/channel": {"abi"},
	"stage1/images/kvm/network": {"proc", "stage1/images/native"},
	"stage1/images/oci":         {"proc", "abi", "stage1/images/native", "stage1/images/rktfront"},
}

// edge lists what may only be imported at the RPC edge, and insidePod what a
// program inside a pod must not link at all.
var (
	edgePackages = []string{"cmd", "manager", "shim", "options", "sandbox", "wire"}
	edge         = []string{
		"github.com/containerd/ttrpc",
		"google.golang.org/protobuf",
		"github.com/containerd/containerd/api",
		"github.com/containerd/containerd/v2",
		"github.com/containerd/cgroups",
		"github.com/containerd/typeurl",
	}
	insidePod = append([]string{"github.com/containerd", "google.golang.org", "github.com/gogo", "github.com/sirupsen", "github.com/appc"}, edge...)
)

func TestImportsGoOneWay(t *testing.T) {
	for file, imports := range sources(t) {
		pkg := owner(filepath.ToSlash(filepath.Dir(file)))
		if pkg == "" {
			continue
		}
		for _, imp := range imports {
			if ours, ok := strings.CutPrefix(imp, module); ok && !allowed(pkg, ours) {
				t.Errorf("%s imports %s: %s may import %v only", file, ours, pkg, layers[pkg])
			}
		}
	}
}

// behindTheDoor lists packages whose doors are passed to stage1.For, each with the only
// packages that may import it: cmd, which passes the door, and packages behind the doors.
var behindTheDoor = map[string][]string{
	"stage1/immutable": {"cmd", "stage1/rktabi"},
	"stage1/rktabi":    {"cmd"},
}

func TestOnlyWhoHandsOverADoorImportsWhatIsBehindIt(t *testing.T) {
	for file, imports := range sources(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		for _, imp := range imports {
			ours, _ := strings.CutPrefix(imp, module)
			for pkg, importers := range behindTheDoor {
				if within(ours, []string{pkg}) && !within(dir, append(importers, pkg)) {
					t.Errorf("%s imports %s, which only %v may", file, ours, importers)
				}
			}
		}
	}
}

// rktctlOnly are the packages of the command line. The shim and the programs below
// stage1/images link none of them.
var rktctlOnly = []string{"github.com/spf13/cobra", "go.yaml.in"}

func TestOnlyRktctlLinksTheCommandLinesPackages(t *testing.T) {
	linked := func(program string) (ours []string) {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", program, err)
		}
		for pkg := range strings.Lines(string(out)) {
			if pkg = strings.TrimSpace(pkg); within(pkg, rktctlOnly) {
				ours = append(ours, pkg)
			}
		}
		return ours
	}
	if got := linked("./cmd/rktctl"); len(got) == 0 {
		t.Error("rktctl links none of them: the test is broken")
	}
	for _, program := range []string{"./cmd/containerd-shim-rkt-v1", "./cmd/containerd-shim-rkt-server", "./stage1/images/..."} {
		if got := linked(program); len(got) > 0 {
			t.Errorf("%s links %q", program, got)
		}
	}
}

// linked has the number of packages of other projects that the programs of every pod link.
// Their code and what they initialise is memory of every pod: docs/adr/0029-memory-at-rest.md.
// A number is only raised for what every pod needs.
var linked = map[string]int{"./cmd/containerd-shim-rkt-server": 90, "./cmd/containerd-shim-rkt-v1": 1, "./stage1/images/native": 4}

func TestTheProgramsOfEveryPodLinkNoMorePackages(t *testing.T) {
	for program, most := range linked {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", program).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", program, err)
		}
		others := slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool { return within(pkg+"/", []string{strings.TrimSuffix(module, "/")}) })
		if len(others) > most {
			t.Errorf("%s links %d packages of other projects, more than %d:\n%s", program, len(others), most, strings.Join(others, "\n"))
		}
		if len(others) < most {
			t.Errorf("%s links only %d packages of other projects: lower the number %d", program, len(others), most)
		}
	}
}

// fromDisk are the files that remove pods and know nothing of them except their files
// on disk.
var fromDisk = []string{"cmd/containerd-shim-rkt-server/collect.go", "pod/disk"}

func TestWhatWorksFromDiskAloneImportsNoPod(t *testing.T) {
	seen := map[string]bool{}
	for file, imports := range sources(t) {
		for _, root := range fromDisk {
			if !within(filepath.ToSlash(file), []string{root}) {
				continue
			}
			seen[root] = true
			if slices.Contains(imports, module+"pod") {
				t.Errorf("%s imports pod, which is in memory", file)
			}
		}
	}
	if len(seen) != len(fromDisk) {
		t.Errorf("of %q only %v are there", fromDisk, seen)
	}
}

func TestProtocolPackagesStayAtTheEdge(t *testing.T) {
	for file, imports := range sources(t) {
		pkg := owner(filepath.ToSlash(filepath.Dir(file)))
		for _, imp := range imports {
			if pkg == "proc" && strings.Contains(imp, ".") && !within(imp, []string{"golang.org/x/sys"}) && !strings.HasPrefix(imp, module) {
				t.Errorf("%s imports %s: of others, %s imports golang.org/x/sys only", file, imp, pkg)
			}
			if within(imp, edge) && !within(pkg, edgePackages) {
				t.Errorf("%s imports %s, which belongs in %v only", file, imp, edgePackages)
			}
			if within(pkg, []string{"stage1/images"}) && within(imp, insidePod) {
				t.Errorf("%s imports %s: what runs inside a pod links nothing of containerd's or appc's", file, imp)
			}
		}
	}
}

// Packages below cmd/rktctl link what would make every pod's server larger.
func TestOnlyRktctlLinksItsPackages(t *testing.T) {
	const rktctl = "cmd/rktctl"
	for file, imports := range sources(t) {
		for _, imp := range imports {
			if within(imp, []string{module + rktctl}) && !within(filepath.ToSlash(file), []string{rktctl}) {
				t.Errorf("%s imports %s, which only rktctl may", file, imp)
			}
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/containerd-shim-rkt-server").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, big := range []string{module + rktctl, "github.com/klauspost/compress", "github.com/containerd/containerd/v2/pkg/archive", "github.com/containerd/containerd/v2/pkg/oci",
		"github.com/containerd/containerd/v2/core/mount", "github.com/opencontainers/go-digest", "google.golang.org/protobuf/types/descriptorpb"} {
		for _, pkg := range strings.Fields(string(out)) {
			if within(pkg, []string{big}) {
				t.Errorf("the shim links %s", pkg)
			}
		}
	}
}

func TestOnlyTestsImportTheirHelpers(t *testing.T) {
	for file, imports := range sources(t) {
		for _, imp := range imports {
			if within(imp, []string{module + "internal"}) {
				t.Errorf("%s imports %s, which is for tests", file, imp)
			}
		}
	}
}

// Calls of rkt's stage 0 are served by a process beside an image's supervisor, not by
// the supervisor.
func TestOnlyProgramsImportTheFrontOfRktsCallers(t *testing.T) {
	const front = "stage1/images/rktfront"
	for file, imports := range sources(t) {
		if !within(filepath.ToSlash(file), []string{front}) && filepath.Base(file) != "main.go" && slices.Contains(imports, module+front) {
			t.Errorf("%s imports %s, which only a main.go may", file, front)
		}
	}
}

// sources returns the imports of every source file but tests and other modules.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "integration" || d.Name() == "testdata" || len(path) > 1 && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all[path] = append(all[path], imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d source files; the walk is broken", len(all))
	}
	return all
}

// owner returns the longest listed package that holds dir.
func owner(dir string) string {
	best := ""
	for pkg := range layers {
		if within(dir, []string{pkg}) && len(pkg) > len(best) {
			best = pkg
		}
	}
	return best
}

func allowed(pkg, ours string) bool {
	to := owner(ours)
	if to == pkg {
		return true
	}
	if within(to, []string{pkg}) && pkg != "stage1" {
		return true
	}
	for _, a := range layers[pkg] {
		if a == to || within(to, []string{a}) && a != "stage1" {
			return true
		}
	}
	return false
}

// within reports whether path is one of the roots or below one.
func within(path string, roots []string) bool {
	for _, r := range roots {
		if path == r || strings.HasPrefix(path, r+"/") {
			return true
		}
	}
	return false
}
