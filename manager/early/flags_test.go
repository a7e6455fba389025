package early

import (
	"slices"
	"strings"
	"testing"
)

// requirements.md#B2
func TestFlagsAreReadInGoSyntax(t *testing.T) {
	all := "-namespace ns --id=c1 -address /run/c.sock -publish-binary /bin/c -bundle /b -debug=true -socket s -debug-socket d delete"
	f, err := ParseFlags(strings.Fields(all))
	if err != nil {
		t.Fatal(err)
	}
	want := Flags{Namespace: "ns", ID: "c1", Address: "/run/c.sock", publishBinary: "/bin/c", Bundle: "/b",
		Debug: true, Socket: "s", debugSocket: "d", Action: "delete"}
	if got := *f; got.unknown != nil || got.Namespace != want.Namespace || got.ID != want.ID || got.Address != want.Address ||
		got.publishBinary != want.publishBinary || got.Bundle != want.Bundle || !got.Debug || got.Socket != want.Socket ||
		got.debugSocket != want.debugSocket || got.Action != want.Action {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
}

// requirements.md#B2
func TestUnknownFlagsAreNotFatalForDelete(t *testing.T) {
	for args, want := range map[string]string{
		"-new -id c1 delete":               "-new",
		"-new=1 -id c1 delete":             "-new=1",
		"-id c1 -new value delete":         "-new",
		"-id c1 -new delete":               "-new",
		"-id c1 -new delete delete":        "-new",
		"--new --other 1 -id c1 delete":    "--new --other",
		"-id c1 -new value -debug delete":  "-new",
		"-id c1 -new start -debug delete ": "-new",
	} {
		f, err := ParseFlags(strings.Fields(args))
		if err != nil || f.Action != "delete" || f.ID != "c1" || !slices.Equal(f.unknown, strings.Fields(want)) {
			t.Errorf("%s: parsed %+v, %v", args, f, err)
		}
	}
}

// requirements.md#B2
func TestWrongArgumentsAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-new -id c1 start":    "unknown flag -new",
		"-id c1 -new":          "unknown flag -new",
		"-id c1 restart":       `unknown action "restart"`,
		"-debug=perhaps start": "debug",
		"-id":                  "-id",
	} {
		if _, err := ParseFlags(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// requirements.md#B5
func TestNamespaceAndIDMustBeNames(t *testing.T) {
	for _, f := range []Flags{{ID: "c"}, {Namespace: "n"}, {Namespace: "../n", ID: "c"}, {Namespace: "n", ID: ".."}, {Namespace: "n", ID: "a/b"}} {
		if f.Check() == nil {
			t.Errorf("namespace %q with id %q is accepted", f.Namespace, f.ID)
		}
	}
}
