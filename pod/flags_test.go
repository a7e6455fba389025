package pod

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// flagFields lists the fields of the types of inMemory that look like a flag, each
// with the reason why it does not duplicate a state of the tables.
var flagFields = map[string]string{
	"stateOf.changed":  "wakes up callers at each step; whether they go on is up to the state",
	"turn":             "a lock that a call waits for no longer than its client",
	"process.terminal": "what the client has asked for",
	"app.ownNet":       "a word of its spec, kept when the rest of the spec is not",
	"session.ending":   "lets one of two callers end the supervisor; what becomes of it is a state",
	"process.init":     "a fact about the process, recorded with its pid",
}

// inMemory lists the types that decide which calls are legal: those that have a state of
// the tables, and the types of their fields.
var inMemory = []string{"Pod", "app", "execution", "process", "session", "sandbox", "holder", "stateOf", "outbox", "heldEvent", "lane", "gate", "turn"}

// isFlag reports whether a variable of a type can say no more than yes or no.
func isFlag(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name == "bool"
	case *ast.ChanType:
		return true
	case *ast.StarExpr:
		return isFlag(t.X)
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		return ok && (pkg.Name == "atomic" || pkg.Name == "sync" && strings.HasPrefix(t.Sel.Name, "Once"))
	}
	return false
}

func TestThereIsNoFlagBesideTheTablesOfStates(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found, seen []string
	inspect := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !slices.Contains(inMemory, spec.Name.Name) {
			return true
		}
		seen = append(seen, spec.Name.Name)
		if isFlag(spec.Type) {
			found = append(found, spec.Name.Name)
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					if isFlag(f.Type) {
						found = append(found, spec.Name.Name+"."+name.Name)
					}
				}
			}
		}
		return false
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, inspect)
	}
	slices.Sort(found)
	if want := slices.Sorted(maps.Keys(flagFields)); !slices.Equal(found, want) {
		t.Errorf("flags %v, want %v: make it a state of a table, or write here why it is not one", found, want)
	}
	if len(seen) != len(inMemory) {
		t.Errorf("found the types %v, want %v", seen, inMemory)
	}
}
