package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/console"
	"go.yaml.in/yaml/v3"
)

func TestATableFitsTheTerminal(t *testing.T) {
	tab := &table{columns: []column{{"NAME", 4}, {"STATE", 0}, {"DIGEST", 10}}}
	tab.add("a-rather-long-name", "running", "sha512-0123456789abcdef0123456789abcdef")
	tab.add("b", "exited", "sha512-ff")
	for _, width := range []int{0, 200, 60, 40, 30} {
		widths := tab.fit(width)
		total := 2 * (len(widths) - 1)
		for i, w := range widths {
			total += w
			if least := tab.columns[i].least; w < max(least, len(tab.columns[i].head)) || least == 0 && w < len("running") {
				t.Errorf("in %d columns column %d has %d", width, i, w)
			}
		}
		if width > 0 && total > width {
			t.Errorf("%d of %d columns: %v", total, width, widths)
		}
		if width == 0 && total != 18+2+7+2+39 {
			t.Errorf("cut to %v where there is no terminal", widths)
		}
	}
	if got := cut("0123456789", 4); got != "012…" {
		t.Error(got)
	}
	if got := tab.fit(3); got[1] != len("running") {
		t.Errorf("a column that must not be cut has %d characters", got[1])
	}
}

func TestACellIsOneLineWithoutSequencesOfATerminal(t *testing.T) {
	var b bytes.Buffer
	tab := &table{columns: []column{{"A", 0}, {"B", 0}}}
	tab.add("x\ny\x1b[2J", cell{"z", red})
	if err := tab.write(&Env{Stdout: &b, Getenv: os.Getenv}); err != nil {
		t.Fatal(err)
	}
	if want := "A           B\nx y\\x1b[2J  z\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestOnlyATerminalGetsColours(t *testing.T) {
	master, path, err := console.NewPty()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	terminal, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		vars map[string]string
		want bool
	}{{nil, true}, {map[string]string{"NO_COLOR": "1"}, false}, {map[string]string{"TERM": "dumb"}, false}} {
		e := &Env{Stdout: terminal, Getenv: func(name string) string { return c.vars[name] }}
		if e.coloured() != c.want {
			t.Errorf("with %v: %v", c.vars, !c.want)
		}
	}
	if err := master.Resize(console.WinSize{Width: 33, Height: 10}); err != nil {
		t.Fatal(err)
	}
	if got := widthOf(terminal); got != 33 {
		t.Errorf("the terminal has %d columns", got)
	}
	if e := (&Env{Stdout: &bytes.Buffer{}, Getenv: os.Getenv}); e.coloured() || widthOf(e.Stdout) != 0 {
		t.Error("a buffer is no terminal")
	}
}

func TestYAMLIsTheSameDocumentAsJSON(t *testing.T) {
	value := map[string]any{
		"a": "true", "b": true, "c": nil, "d": 1.5, "e": "\x7f\u009b \u2028\n- x: y", "f": []any{}, "g": map[string]any{},
		"h": []any{"1", 1.0, map[string]any{"k": "null", "": "~"}}, "i": "0x1", "j": 123456789.0, "k": "2001-01-01",
	}
	for _, f := range []format{formatJSON, formatYAML} {
		var b bytes.Buffer
		o := &output{&Env{Stdout: &b}, f}
		if err := o.writeDocument(value); err != nil {
			t.Fatal(err)
		}
		var got any
		read := json.Unmarshal
		if f == formatYAML {
			read = func(text []byte, v any) error {
				if err := yaml.Unmarshal(text, v); err != nil {
					return err
				}
				text, err := json.Marshal(*v.(*any)) // numbers as JSON reads them
				if err != nil {
					return err
				}
				return json.Unmarshal(text, v)
			}
		}
		if err := read(b.Bytes(), &got); err != nil || !reflect.DeepEqual(got, value) {
			t.Errorf("%s: %v\n%#v\n%s", f, err, got, &b)
		}
	}
	var b bytes.Buffer
	ordered := struct{ Z, A int }{1, 2}
	if err := (&output{&Env{Stdout: &b}, formatYAML}).writeDocument(ordered); err != nil || b.String() != "Z: 1\nA: 2\n" {
		t.Errorf("%v %q", err, &b)
	}
}

func TestAFormatThatDoesNotExistIsAnErrorInTheCommandLine(t *testing.T) {
	got := rktctl(t, configured(t), "stage1", "list", "--output", "xml")
	if got.code != exitUsage || !strings.Contains(got.stderr, "text, json and yaml") {
		t.Errorf("%+v", got)
	}
	asJSON, asOutput := rktctl(t, configured(t), "stage1", "list", "--json"), rktctl(t, configured(t), "stage1", "list", "-o", "json")
	if asJSON != asOutput || asJSON.code != exitDone {
		t.Errorf("%+v and %+v", asJSON, asOutput)
	}
}
