package spec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestATextIsKeptByteForByteAndDecoded(t *testing.T) {
	text := "{ \"process\" : {\"args\":[\"<&>\"], \"novel\": 1e400},\t\"annotations\":{\"\\u0061\":\"b\"} }\n"
	s, err := Read[specs.Spec]([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Text) != text || s.OCI.Process.Args[0] != "<&>" || s.OCI.Annotations["a"] != "b" {
		t.Errorf("%+v", s)
	}
	if got, want := members(s.Root), `process={"args":["<&>"], "novel": 1e400} annotations={"\u0061":"b"}`; got != want {
		t.Errorf("members %s, want %s", got, want)
	}
	for v := s.Root.Members(); v.Next(); {
		for m := v.Members(); m.Next(); {
			if !m.Asks() {
				t.Errorf("%s=%s asks for nothing", m.Name(), m.Raw())
			}
		}
	}
}

func members(v Value) string {
	var all []string
	for m := v.Members(); m.Next(); {
		all = append(all, string(m.Name())+"="+string(m.Raw()))
	}
	return strings.Join(all, " ")
}

func TestWhatIsNoJSONIsRefused(t *testing.T) {
	for _, text := range []string{"", " ", "{", `{"a":1`, `{}{}`, `{"a":1}x`, `{"a" 1}`, "[1,]", `{"a":01}`, "\"\n\""} {
		if d, err := Read[json.RawMessage]([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, d)
		}
	}
	if _, err := Read[specs.Process]([]byte(`{"cwd":7}`)); err == nil {
		t.Error("a process with a number for a directory")
	}
}

func TestMembersOfAnObjectAreReplacedAndTheOthersStay(t *testing.T) {
	is := func(text string) func(Value) []byte { return func(Value) []byte { return []byte(text) } }
	gone := func(Value) []byte { return nil }
	for _, c := range []struct {
		text    string
		changes []Change
		want    string
	}{
		{`{}`, []Change{{"a", is("1")}, {"b", gone}}, `{"a":1}`},
		{`{"a" : 7, "<": [ 1 ],"b":2}`, []Change{{"a", is("1")}, {"b", gone}}, `{"<":[ 1 ],"a":1}`},
		{`{"a":{"x":1,"y":2}}`, []Change{{"a", func(v Value) []byte { return v.With(Change{"x", gone}) }}}, `{"a":{"y":2}}`},
		{`{"a":{"x":1},"a":{"y":2}}`, []Change{{"a", Value.Raw}}, `{"a":{"y":2}}`},
		{`null`, []Change{{"a", is("1")}}, `{"a":1}`},
	} {
		d, err := Read[json.RawMessage]([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(d.Root.With(c.changes...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	if got := string(Value{}.With(Change{"a", is("1")})); got != `{"a":1}` {
		t.Errorf("a change of an empty Value: %s", got)
	}
}

// For any text the places are the same as those that a decoder finds that builds
// all values.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["sh"],"cwd":"/"},"mounts":[{"type":"x","a":[1,{}]}]}`))
	f.Add([]byte("{\"\\u0061\" : {\"\\\"\":\"\\\\\"} , \"\":[ ] ,\"a\":-1.5e3 }"))
	f.Add([]byte(" 7 "))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Read[json.RawMessage](text)
		if (err == nil) != json.Valid(text) {
			t.Fatalf("%q: %v", text, err)
		}
		if err == nil {
			same(t, d.Root)
		}
	})
}

// same compares a value, and all values in it, with the text of the value.
func same(t *testing.T, v Value) {
	if !json.Valid(v.Raw()) || !bytes.Equal(v.Raw(), bytes.TrimSpace(v.Raw())) {
		t.Fatalf("a value is %q", v.Raw())
	}
	if v.IsObject() {
		got, want := map[string]string{}, map[string]json.RawMessage{}
		for m := v.Members(); m.Next(); {
			got[strings.ToValidUTF8(string(m.Name()), "\ufffd")] = string(m.Raw())
		}
		if err := json.Unmarshal(v.Raw(), &want); err != nil {
			t.Fatal(err)
		}
		for name, m := range want {
			if other, ok := got[name]; ok && other != string(m) {
				t.Fatalf("%q in %s is %s", name, v.Raw(), other)
			}
		}
	} else if v.HasMembers() {
		var got, want []json.RawMessage
		for m := v.Members(); m.Next(); {
			got = append(got, m.Raw())
		}
		if err := json.Unmarshal(v.Raw(), &want); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s has the elements %s", v.Raw(), got)
		}
	}
	for m := v.Members(); m.Next(); {
		same(t, m.Value)
	}
}

func TestANamespaceIsNewOrHasAPathOrIsNotAskedFor(t *testing.T) {
	s := &specs.Spec{Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/run/netns/blue"},
	}}}
	for kind, want := range map[specs.LinuxNamespaceType]struct {
		path  string
		asked bool
	}{
		specs.PIDNamespace:     {"", true},
		specs.NetworkNamespace: {"/run/netns/blue", true},
		specs.IPCNamespace:     {"", false},
	} {
		if path, asked := Namespace(s, kind); path != want.path || asked != want.asked {
			t.Errorf("%s: %q, %t, want %+v", kind, path, asked, want)
		}
	}
	if path, asked := Namespace(&specs.Spec{}, specs.PIDNamespace); path != "" || asked {
		t.Errorf("a spec without linux: %q, %t", path, asked)
	}
}
