package shim_test

import (
	"cmp"
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

// backUp says, for each package whose files have an order, how many arrows may go against
// it. An arrow leads from a file to another one that declares an identifier, a field or a
// method that the first one uses. A number may only become smaller.
var backUp = map[string]int{
	"pod":      22,
	"pod/disk": 0,
}

func TestArrowsBetweenFilesGoOneWay(t *testing.T) {
	for pkg, most := range backUp {
		arrows := fileArrows(t, pkg)
		order := orderOf(arrows)
		back := against(order, arrows)
		t.Logf("%s: %d files on %d levels, %d arrows, %d back up", pkg, len(order), levels(order, arrows), count(arrows), len(back))
		if len(back) > most {
			t.Errorf("%s: %d arrows between its files go back up, and %d may: %s", pkg, len(back), most, strings.Join(back, ", "))
		}
	}
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

func count(g graph) (n int) {
	for _, to := range g {
		n += len(to)
	}
	return n
}

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

// exports returns what the compiler says of the packages that a package imports.
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

// orderOf returns the files in an order that few arrows go against, users first: none, if
// there is no circle.
func orderOf(arrows graph) []string {
	left := slices.Sorted(maps.Keys(arrows))
	var first, last []string
	degree := func(file string) (in, out int) {
		for _, other := range left {
			if arrows[other][file] {
				in++
			}
			if arrows[file][other] {
				out++
			}
		}
		return in, out
	}
	for len(left) > 0 {
		// Files that none of the others uses come first, and those that use none last. In
		// a circle, the one that uses most and is used least comes first.
		best := slices.MaxFunc(left, func(a, b string) int {
			score := func(file string) int {
				in, out := degree(file)
				switch {
				case out == 0:
					return 2 * len(arrows)
				case in == 0:
					return len(arrows)
				}
				return out - in
			}
			return cmp.Compare(score(a), score(b))
		})
		if _, out := degree(best); out == 0 {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
		left = slices.DeleteFunc(left, func(file string) bool { return file == best })
	}
	slices.Reverse(last)
	return improved(append(first, last...), arrows)
}

// improved moves files to where fewer arrows go against the order, one at a time.
func improved(order []string, arrows graph) []string {
	fewest := len(against(order, arrows))
	for again := true; again && fewest > 0; {
		again = false
		for i := range order {
			for j := range order {
				moved := slices.Delete(slices.Clone(order), i, i+1)
				moved = slices.Insert(moved, j, order[i])
				if n := len(against(moved, arrows)); n < fewest {
					order, fewest, again = moved, n, true
				}
			}
		}
	}
	return order
}

// against returns the arrows that go back up in an order.
func against(order []string, arrows graph) []string {
	var back []string
	for i, file := range order {
		for _, above := range order[:i] {
			if arrows[file][above] {
				back = append(back, file+" → "+above)
			}
		}
	}
	return back
}

// levels returns how many files the longest way down leads through.
func levels(order []string, arrows graph) int {
	depth := map[string]int{}
	for i, file := range slices.Backward(order) {
		depth[file] = 1
		for _, below := range order[i+1:] {
			if arrows[file][below] {
				depth[file] = max(depth[file], depth[below]+1)
			}
		}
	}
	return slices.Max(slices.Collect(maps.Values(depth)))
}
