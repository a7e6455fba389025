package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var aDigest = "sha512-" + strings.Repeat("0123456789abcdef", 8)

func TestEveryKeyIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Config
	}{
		"nothing":            {"", Config{}},
		"a comment":          {"# nothing\n", Config{}},
		"the default":        {`default = "oci"`, Config{Default: "oci"}},
		"a table of nothing": {"[stage1.oci]\n", Config{Stage1s: map[string]Stage1{"oci": {}}}},
		"all of a stage1": {
			"[stage1.fly]\npath = '/opt/fly.aci'\ndigest = '" + aDigest + "'\npods_may_ask = true\npods_may_leave = false\n" +
				"accept = [ # why\n  '/linux/seccomp', # because\n  \"/process/rlimits\",\n]\n",
			Config{Stage1s: map[string]Stage1{"fly": {
				Path: "/opt/fly.aci", Digest: aDigest, PodsMayAsk: true, PodsMustStay: true, Accept: []string{"/linux/seccomp", "/process/rlimits"},
			}}},
		},
		"what concerns ACIs": {
			"[aci]\ndependencies = ['/opt/acis/', '/srv/acis']\nkeyring = '/etc/keys/'\n",
			Config{ACIs: ACIs{Dependencies: []string{"/opt/acis", "/srv/acis"}, Keyring: "/etc/keys"}},
		},
		"dotted and inline": {
			"stage1.a.pods_may_ask = true\nstage1.b = { pods_may_ask = true, accept = ['/x'] }\n",
			Config{Stage1s: map[string]Stage1{"a": {PodsMayAsk: true}, "b": {PodsMayAsk: true, Accept: []string{"/x"}}}},
		},
		"what is the default anyway": {
			"[stage1.a]\npods_may_ask = false\npods_may_leave = true\naccept = []\n", Config{Stage1s: map[string]Stage1{"a": {}}},
		},
		"sets of fields, used before they are there": {
			"[stage1.a]\naccept = ['none', 'two', '/c']\n[fields]\ntwo = ['/a', '/b/*']\nnone = []\n",
			Config{Stage1s: map[string]Stage1{"a": {Accept: []string{"/a", "/b/*", "/c"}}}, Sets: map[string][]string{"two": {"/a", "/b/*"}, "none": {}}},
		},
		"the built-in set": {
			"stage1.a.accept = ['appc']\n", Config{Stage1s: map[string]Stage1{"a": {Accept: builtinSet(SetAppc)}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("f", []byte(c.text))
			if err == nil {
				got.places, got.pointers = nil, nil
			}
			if err != nil || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestWhatIsWrongIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"default = \"native\"\ndefault = \"oci\"\n": "f:2:",
		"default = \n":                        "f:1:",
		"\n\n[stage1.a\n":                     "f:3:",
		"deflaut = 'a'\n":                     `f:1:1: unknown key deflaut: the nearest valid one is default (valid: default, refuse_unknown_fields, stage1, fields, aci, local)`,
		"# x\n[stage2.a]\npath = '/x'\n":      "f:2:2: unknown key stage2.a: the nearest valid one is stage1",
		"[stage1.a]\n  pods_may_aks = true\n": "f:2:3: unknown key stage1.a.pods_may_aks: the nearest valid one is pods_may_ask",
		"stage1 = { a = { pth = '/x' } }\n":   "unknown key stage1.a.pth: the nearest valid one is path",
		"[stage1.a.digest]\nsha512 = 'x'\n":   "f:1:2: stage1.a.digest is not a table",
		"[stage1.a]\ndigest.sha512 = 'x'\n":   "f:2:1: unknown key stage1.a.digest.sha512: stage1.a.digest has no keys of its own",
		"[default]\n":                         "f:1:2: default is not a table",
		"[fields.x]\n":                        "f:1:2: fields.x is not a table",
		"fields.x.y = 1\n":                    "unknown key fields.x.y: fields.x has no keys of its own",
		"[[stage1]]\n":                        "f:1:3: stage1 is a table, and not a list of tables: write [stage1]",
		"stage1 = 'native'\n":                 "f:1:1: stage1 has to be a table",
		"stage1.native = '/x'\n":              "stage1.native has to be a table",
		"fields = []\n":                       "fields has to be a table",
		"default = true\n":                    "default has to be a text in quotes",
		"default = 'Native'\n":                `stage1 "Native": a name has small letters`,
		"default = ''\n":                      `stage1 "": a name has small letters`,
		"[stage1.\"../x\"]\n":                 `stage1 "../x": a name has small letters`,
		"[stage1.a]\npath = 'relative'\n":     `f:2:1: stage1.a.path: "relative" is not an absolute path`,
		"[stage1.a]\ndigest = 'sha256-00'\n":  `stage1.a.digest: "sha256-00" is not "sha512-" and 128 digits`,
		"[stage1.a]\ndigest = '" + strings.ToUpper(aDigest) + "'\n": "stage1.a.digest",
		"[stage1.a]\npods_may_ask = 'yes'\n":                        "f:2:1: stage1.a.pods_may_ask has to be true or false",
		"[stage1.a]\npods_may_leave = 0\n":                          "stage1.a.pods_may_leave has to be true or false",
		"[stage1.a]\naccept = '/x'\n":                               "stage1.a.accept has to be a list of texts",
		"[stage1.a]\naccept = [1]\n":                                "stage1.a.accept has to be a text in quotes",
		"[stage1.a]\naccept = [\n'/x',\n  'apc']\n":                 `f:4:3: stage1.a.accept: "apc" is neither a JSON pointer into config.json, such as "/process/rlimits", nor a set of fields: the nearest set is appc`,
		"[stage1.a]\naccept = ['/']\n":                              `"/" is neither`,
		"[fields]\nx = ['appc']\n":                                  `f:2:6: fields.x: "appc" is not a JSON pointer`,
		"[fields]\nx = 1\n":                                         "fields.x has to be a list",
		"[fields]\nappc = ['/x']\n":                                 "f:2:1: the set of fields appc comes with the shim",
		"[aci]\nkeyrign = '/x'\n":                                   "f:2:1: unknown key aci.keyrign: the nearest valid one is keyring (valid: dependencies, keyring)",
		"[aci]\nkeyring = 'keys'\n":                                 `f:2:1: aci.keyring: "keys" is not an absolute path`,
		"[aci]\nkeyring = ['/keys']\n":                              "aci.keyring has to be a text in quotes",
		"[aci]\ndependencies = '/x'\n":                              "aci.dependencies has to be a list",
		"[aci]\ndependencies = ['/x',\n 'y']\n":                     `f:3:2: aci.dependencies: "y" is not an absolute path`,
		"aci = 1\n":                                                 "f:1:1: aci has to be a table",
		"[aci.keyring]\n":                                           "f:1:2: aci.keyring is not a table",
		"[fields]\n\"a b\" = ['/x']\n":                              `set of fields "a b"`,
	} {
		c, err := Parse("f", []byte(text))
		var problems Problems
		if !errors.As(err, &problems) || c != nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	_, err := Parse("f", []byte("default = 1\n[stage1.a]\npath = 'x'\naccept = ['y', 'z']\nunknown = 1\n"))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 5 {
		t.Fatalf("%v: %d problems", err, len(problems))
	}
	if !strings.HasSuffix(err.Error(), "(and 4 more)") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the text for the event of a pod is %q", err)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if !slices.Equal(lines, []int{1, 3, 4, 4, 5}) {
		t.Errorf("the lines are %v", lines)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDropInsCountInTheOrderOfTheirNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	c, err := Read(file)
	if err != nil || !reflect.DeepEqual(c, &Config{file: file}) {
		t.Fatalf("without any file: %+v, %v", c, err)
	}
	write(t, file+".d/10-site.toml", "default = 'b'\n[stage1.a]\npods_may_ask = true\naccept = ['mine']\n")
	if c, err = Read(file); err == nil || !strings.Contains(err.Error(), file+".d/10-site.toml:4:11") {
		t.Fatalf("a drop-in alone, with a set that is nowhere: %+v, %v", c, err)
	}
	write(t, file, "default = 'a'\n[stage1.a]\npath = '/a'\naccept = ['/x']\n[fields]\nmine = ['/y']\n")
	write(t, file+".d/20-node.toml", "stage1.a.path = '/b'\n[fields]\nmine = ['/z']\n")
	write(t, file+".d/.hidden.toml", "not TOML")
	write(t, file+".d/30-node.toml.bak", "not TOML")
	want := &Config{
		Default: "b", Stage1s: map[string]Stage1{"a": {Path: "/b", PodsMayAsk: true, Accept: []string{"/z"}}}, Sets: map[string][]string{"mine": {"/z"}},
	}
	if c, err = Read(file); err != nil {
		t.Fatal(err)
	}
	if p := c.Problem("stage1.a.path", "is %s", "bad"); p.Error() != file+".d/20-node.toml:1:1: stage1.a.path: is bad" {
		t.Errorf("the place of a key is told as %v", p)
	}
	if p := c.Problem("stage1.b.path", "is missing"); p.Error() != file+": stage1.b.path: is missing" {
		t.Errorf("the place of a key that is nowhere is told as %v", p)
	}
	c.places, c.pointers, c.file = nil, nil, ""
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	write(t, file+".d/05-first.toml", "default = 5\n")
	if _, err = Read(file); err == nil || !strings.Contains(err.Error(), "05-first.toml:1:1") {
		t.Errorf("an error in a drop-in: %v", err)
	}
}

func TestAFileThatOthersCanWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	write(t, file, "default = 'a'\n")
	for _, mode := range []os.FileMode{0o620, 0o602} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), file+" can be written by others than root") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to give the file to another user")
	}
	if err := os.Chown(file, 1000, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "can be written by others than root") {
		t.Errorf("another owner: %v", err)
	}
}

func TestOnlyWhatIsNamedHasToBeThere(t *testing.T) {
	dir := t.TempDir()
	named := func(path string) func(string) string {
		return func(name string) string { return map[string]string{FileVariable: path}[name] }
	}
	if _, err := Open(named(filepath.Join(dir, "none"))); err == nil || !strings.Contains(err.Error(), FileVariable) {
		t.Errorf("a file that is named and not there: %v", err)
	}
	file := filepath.Join(dir, "here")
	write(t, file, "default = 'a'\n")
	if c, err := Open(named(file)); err != nil || c.Default != "a" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a directory: %v", err)
	}
	long := filepath.Join(dir, "long")
	write(t, long, strings.Repeat("#", maxText+1))
	if _, err := Read(long); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a long file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"default = 'native'\n", "[stage1.fly]\npath = '/x'\naccept = ['appc', '/linux/seccomp']\n", "[fields]\na = ['/b']\n",
		"stage1 = { a = { pods_may_ask = true } }\n", "[[stage1]]\n", "stage1.\"\".x = 1\n", "fields.x.y = {z=1}\n", "[stage1.a.accept.b]\n",
		"stage1.a.accept = ['''\n/x''']\n", "\xff = 1",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if (err == nil) == (c == nil) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("%v has no place", err)
			}
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 || p.Line > 1+strings.Count(string(text), "\n") {
					t.Errorf("%v: there is no such place", p)
				}
			}
			return
		}
		for name, s := range c.Stage1s {
			if !IsName(name) || s.Path != "" && !filepath.IsAbs(s.Path) || s.Digest != "" && !isDigest(s.Digest) {
				t.Errorf("stage1 %q is %+v", name, s)
			}
			for _, p := range s.Accept {
				if !isPointer(p) {
					t.Errorf("stage1 %s accepts %q", name, p)
				}
			}
		}
		if c.Default != "" && !IsName(c.Default) {
			t.Errorf("the default is %q", c.Default)
		}
	})
}

// Pods do not fail for fields that this release does not know; config check names them.
func TestFieldsThatAreNotInTheSpecAreFound(t *testing.T) {
	for pointer, want := range map[string]string{
		"/process/rlimits":                       "",
		"/mounts/*/options":                      "",
		"/mounts/3/uidMappings/*/hostID":         "",
		"/annotations/whatever":                  "",
		"/linux/resources/unified/memory.max":    "",
		"/linux/sysctl":                          "",
		"/process/user/umask":                    "",
		"/process/rlimit":                        `/process has no "rlimit"; did you mean "/process/rlimits"?`,
		"/procss/rlimits":                        `/ has no "procss"; did you mean "/process"?`,
		"/mounts/options":                        `/mounts is a list: after it comes a * for any entry, or a number, and not "options"`,
		"/hostname/x":                            "/hostname has nothing below it",
		"/linux/seccomp/syscalls/*/arg":          `/linux/seccomp/syscalls/* has no "arg"; did you mean "/linux/seccomp/syscalls/*/args"?`,
		"/process/capabilities/bounding/*/x":     "/process/capabilities/bounding/* has nothing below it",
		"/linux/resources/memory/disableOOMKill": `did you mean "/linux/resources/memory/disableOOMKiller"?`,
	} {
		for place, text := range map[string]string{
			"f:2:11: stage1.a.accept: ": "[stage1.a]\naccept = ['" + pointer + "']\n",
			"f:2:6: fields.x: ":         "[fields]\nx = ['" + pointer + "']\n",
		} {
			c, err := Parse("f", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			all := c.UnknownFields()
			if want == "" && len(all) > 0 || want != "" && (len(all) != 1 || !strings.HasPrefix(all[0].Error(), place) || !strings.Contains(all[0].Text, want)) {
				t.Errorf("%s: %v, want %q", pointer, all, want)
			}
		}
	}
}

// The fields of the set that comes with the shim are some of the spec.
func TestTheBuiltInSetHasFieldsOfTheSpecOnly(t *testing.T) {
	for _, pointer := range builtinSet(SetAppc) {
		if c, err := Parse("f", []byte("[fields]\nx = ['"+pointer+"']\n")); err != nil || len(c.UnknownFields()) > 0 {
			t.Errorf("%v, %v", c.UnknownFields(), err)
		}
	}
}

// Parse reads one text. Problems name it as the file name.
func Parse(name string, text []byte) (*Config, error) {
	r := reader{config: &Config{}}
	r.read(name, text)
	return r.end()
}
