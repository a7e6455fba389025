package shim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readers lists the functions that read a spec, and the only files that may call them. The
// shim calls them when a text arrives; all other code gets their results.
var readers = map[string][]string{
	"spec.Read":       {"pod/app.go", "pod/disk/holder.go", "pod/exec.go", "pod/resources.go", "stage1/conformance/spec.go"},
	"pod.ReadSpec":    {"cmd/rktctl/cli/why_pod.go", "cmd/rktctl/cli/why_spec.go", "shim/lifecycle.go"}, // rktctl why is no shim
	"pod.ReadProcess": {"shim/lifecycle.go"},
}

// decoders are the functions of encoding/json and plainjson that pass over a text.
var decoders = []string{"plainjson.Decode", "json.Unmarshal", "json.NewDecoder", "json.Valid", "json.Compact", "json.Indent", "json.HTMLEscape"}

// The text of a spec is read once when it arrives, by package spec. So no other file that
// has the text of a spec may decode JSON.
func TestASpecIsReadOnce(t *testing.T) {
	found := map[string][]string{}
	for file, imports := range sources(t) {
		file = filepath.ToSlash(file)
		if strings.HasPrefix(file, "pod/spec/") || strings.HasPrefix(file, "stage1/images/") {
			continue
		}
		calls, hasText := calls(t, file)
		for _, call := range calls {
			if readers[call] != nil {
				found[call] = append(found[call], file)
			}
			if (hasText || slices.Contains(imports, module+"pod/spec")) && slices.Contains(decoders, call) {
				t.Errorf("%s has a spec at hand, and calls %s", file, call)
			}
		}
	}
	for name, want := range readers {
		if got := slices.Sorted(slices.Values(found[name])); !slices.Equal(got, want) {
			t.Errorf("%s is called in %v, want %v", name, got, want)
		}
	}
}

// calls returns the names of the functions that a file calls, as the file writes them, and
// whether the file uses the text of a Spec or Process.
func calls(t *testing.T, file string) (names []string, hasText bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fun := n.Fun
			if of, ok := fun.(*ast.IndexExpr); ok { // of a type
				fun = of.X
			}
			names = append(names, selected(fun))
		case *ast.SelectorExpr:
			of := selected(n)
			hasText = hasText || of == "Spec.Text" || of == "Process.Text"
		}
		return true
	})
	return names, hasText
}

// selected returns the last two names of an expression a.b or x.a.b, or "".
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := s.X.(type) {
	case *ast.Ident:
		return x.Name + "." + s.Sel.Name
	case *ast.SelectorExpr:
		return x.Sel.Name + "." + s.Sel.Name
	}
	return ""
}
