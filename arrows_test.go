package shim_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneWay are the packages whose files form levels: a file uses identifiers, fields and methods
// of files below it only.
var oneWay = []string{"pod", "pod/disk"}

func TestArrowsBetweenFilesGoOneWay(t *testing.T) {
	for _, pkg := range oneWay {
		arrows := fileArrows(t, pkg)
		files, levels := len(arrows), 0
		for ; len(arrows) > 0; levels++ {
			lowest := leaves(arrows)
			if len(lowest) == 0 {
				t.Errorf("%s: these files use each other, in circles: %v", pkg, arrows)
				break
			}
			for _, file := range lowest {
				delete(arrows, file)
			}
		}
		t.Logf("%s: %d files on %d levels", pkg, files, levels)
	}
}

// leaves returns the files that use none of the others.
func leaves(arrows graph) []string {
	var found []string
	for file, to := range arrows {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(to)), func(other string) bool { return arrows[other] != nil }) {
			found = append(found, file)
		}
	}
	return found
}

func TestWhatIsOnDiskStartsNoGoroutine(t *testing.T) {
	fset := token.NewFileSet()
	for _, path := range sourcesOf(t, "pod/disk") {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if start, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", fset.Position(start.Pos()))
			}
			return true
		})
	}
}

// sourcesOf returns the files of a package, without its tests.
func sourcesOf(t *testing.T, pkg string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("files of %s: %v, %v", pkg, paths, err)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// graph has the arrows from each file.
type graph map[string]map[string]bool

// fileArrows returns the arrows between the files of a package.
func fileArrows(t *testing.T, pkg string) graph {
	t.Helper()
	fset := token.NewFileSet()
	arrows := graph{}
	var files []*ast.File
	for _, path := range sourcesOf(t, pkg) {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		arrows[filepath.Base(path)] = map[string]bool{}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, pkg))}
	own, err := conf.Check(module+pkg, fset, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	for ident, object := range info.Uses {
		if object.Pkg() != own {
			continue
		}
		from, to := filepath.Base(fset.Position(ident.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)
		if from != to {
			arrows[from][to] = true
		}
	}
	return arrows
}

// exports returns an importer's look-up of the compiler's export data, for the packages
// that a package imports.
func exports(t *testing.T, pkg string) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+pkg).Output()
	if err != nil {
		t.Fatalf("go list ./%s: %v", pkg, err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = file
	}
	return func(name string) (io.ReadCloser, error) {
		if found[name] == "" {
			return nil, fmt.Errorf("%s has no export data", name)
		}
		return os.Open(found[name])
	}
}
