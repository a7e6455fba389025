package shim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A field of the shim's log has one name, which docs/troubleshooting.md lists.
func TestTheFieldsOfTheLogAreThoseOfTheDocument(t *testing.T) {
	page, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The shim's log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([a-z0-9]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	used := map[string]bool{}
	for file := range sources(t) {
		if within(filepath.ToSlash(file), []string{"manager", "shim", "pod", "stage1", "cmd/containerd-shim-rkt-v1", "cmd/containerd-shim-rkt-server"}) {
			for _, name := range logFields(t, file) {
				used[name] = true
				if !documented[name] {
					t.Errorf("%s: the field %q is not in docs/troubleshooting.md", file, name)
				}
			}
		}
	}
	for name := range documented {
		if !used[name] {
			t.Errorf("docs/troubleshooting.md lists the field %q, which no line has", name)
		}
	}
}

// logFields returns the names of the fields that a source file gives to log lines: by
// WithField, in a log.Fields, or in a variable called fields.
func logFields(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
	}
	logs := false
	for _, i := range f.Imports {
		logs = logs || i.Path.Value == `"github.com/containerd/log"`
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "WithField" {
				add(n.Args[0])
			}
		case *ast.CompositeLit:
			if s, ok := n.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Fields" {
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						add(kv.Key)
					}
				}
			}
		case *ast.IndexExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "fields" && logs {
				add(n.Index)
			}
		}
		return true
	})
	return names
}
