package rktabi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestAWordOfAUnitIsQuoted(t *testing.T) { // section 11
	for word, want := range map[string]string{
		"":              `""`,
		"a b":           `"a b"`,
		`'c' "d" \e`:    `"'c' \"d\" \\e"`,
		"%h":            `"%%h"`,
		"$HOME":         `"$HOME"`,
		"tab\tand\x7fß": `"tab\x09and\x7fß"`,
	} {
		if got := quoteUnit(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}

func TestOnlyACommandLineWithAPercentSignIsReplaced(t *testing.T) { // section 11
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/date"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want []string }{
		{[]string{"date", "-u"}, nil},
		{[]string{"date", "+%s", "$x"}, []string{"ExecStart=", `ExecStart="/bin/date" "+%%s" "$$x"`}},
	} {
		got, err := commandLine(root, &specs.Process{Args: c.args})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.args, got, err, c.want)
		}
	}
	if _, err := commandLine(root, &specs.Process{Args: []string{"nosuch", "%"}}); err == nil {
		t.Error("a program that is not there has a command line")
	}
}

func TestUsersThatSystemdRefusesAreRefusedByName(t *testing.T) {
	for field, u := range map[string]specs.User{
		"/process/user/uid":            {UID: 65535, GID: 1},
		"/process/user/gid":            {UID: 1, GID: 65535},
		"/process/user/additionalGids": {AdditionalGids: []uint32{1, 65535}},
	} {
		if err := checkUser(u); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%+v: %v, want that %s is refused", u, err, field)
		}
	}
	if err := checkUser(specs.User{UID: 65534, GID: 65536, AdditionalGids: []uint32{0}}); err != nil {
		t.Error(err)
	}
}
