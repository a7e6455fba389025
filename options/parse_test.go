package options

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	runc "github.com/containerd/containerd/api/types/runc/options"
	generic "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// pack puts a message into an Any, as containerd does.
func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: messageOf(m), Value: b}
}

// defaultTable is what containerd's CRI has for runc, and sends to another
// runtime when only the runtime's type is changed.
const defaultTable = `BinaryName = ''
CriuImagePath = ''
CriuWorkPath = ''
IoGid = 0
IoUid = 0
NoNewKeyring = false
Root = ''
ShimCgroup = ''
SystemdCgroup = true
`

// requirements.md#O1
func TestWhatClientsSendIsTranslated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("NoNewKeyring = true\nIoUid = 4294967295\n[nested]\nkey = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := &Options{ShimCgroup: "/shims", NoPivotRoot: true, NoNewKeyring: true, IoUid: 1, IoGid: 2}
	for name, c := range map[string]struct {
		in     *anypb.Any
		want   *Options
		unused []string
	}{
		"nothing":      {nil, &Options{}, nil},
		"an empty Any": {&anypb.Any{}, &Options{}, nil},
		"ours":         {pack(t, full), full, nil},
		"ours, empty":  {pack(t, &Options{}), &Options{}, nil},
		"runc's": {
			pack(t, &runc.Options{ShimCgroup: "/shims", NoPivotRoot: true, NoNewKeyring: true, IoUid: 1, IoGid: 2}), full, nil,
		},
		"runc's, about runc": {
			pack(t, &runc.Options{BinaryName: "crun", Root: "/r", SystemdCgroup: true, CriuImagePath: "/i", CriuWorkPath: "/w",
				TaskApiAddress: "ttrpc+unix:///a", TaskApiVersion: 3}), &Options{},
			[]string{"binary_name", "criu_image_path", "criu_work_path", "root", "systemd_cgroup"},
		},
		"runc's of containerd 1.6": {
			&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: protowire.AppendString(protowire.AppendTag([]byte{8, 1}, 8, protowire.BytesType), "/criu")},
			&Options{NoPivotRoot: true}, []string{"fields of another version of containerd.runc.v1.Options"},
		},
		"with a prefix": {
			&anypb.Any{TypeUrl: "type.googleapis.com/containerd.runc.v1.Options", Value: []byte{16, 1}}, &Options{NoNewKeyring: true}, nil,
		},
		"CRI's table of runc": {
			pack(t, &generic.Options{ConfigBody: []byte(defaultTable)}), &Options{}, []string{"SystemdCgroup"},
		},
		"a table that means something": {
			pack(t, &generic.Options{ConfigBody: []byte("ShimCgroup = '/shims'\nNoPivotRoot = true\nNoNewKeyring = true\nIoUid = 1\nIoGid = 2\n")}), full, nil,
		},
		"a table with keys of nobody": {
			pack(t, &generic.Options{ConfigBody: []byte("Foo = 1\nBar = ['a']\n")}), &Options{}, []string{"Bar", "Foo"},
		},
		"a file": {
			pack(t, &generic.Options{ConfigPath: file, ConfigBody: []byte("not TOML")}), &Options{NoNewKeyring: true, IoUid: 1<<32 - 1}, []string{"nested"},
		},
		"a table of our type": {
			pack(t, &generic.Options{TypeUrl: "containerd.rkt.v1.Options", ConfigBody: []byte("NoPivotRoot = true\n")}), &Options{NoPivotRoot: true}, nil,
		},
		"another runtime's file": {
			pack(t, &generic.Options{TypeUrl: "io.containerd.runsc.v1.options", ConfigPath: "/no/such/file"}), &Options{},
			[]string{"a configuration of type io.containerd.runsc.v1.options"},
		},
		"another runtime's type alone": {
			pack(t, &generic.Options{TypeUrl: "io.containerd.runsc.v1.options"}), &Options{}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, unused, err := Parse(c.in)
			if err != nil || !proto.Equal(got, c.want) || !slices.Equal(unused, c.unused) {
				t.Errorf("%v, unused %q, %v; want %v, unused %q", got, unused, err, c.want, c.unused)
			}
			if !IsKnown(c.in) {
				t.Error("the type is not known")
			}
		})
	}
}

// requirements.md#O1
func TestWhatCannotBeRightIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, make([]byte, maxText+1), 0o600); err != nil {
		t.Fatal(err)
	}
	table := func(text string) *anypb.Any { return pack(t, &generic.Options{ConfigBody: []byte(text)}) }
	path := func(path string) *anypb.Any { return pack(t, &generic.Options{ConfigPath: path}) }
	for want, in := range map[string]*anypb.Any{
		`"example.com/My.Options"`:              {TypeUrl: "example.com/My.Options"},
		`"containerd.linux.runc.CreateOptions"`: {TypeUrl: "containerd.linux.runc.CreateOptions", Value: []byte{0xff}},
		"containerd.runc.v1.Options:":           {TypeUrl: "containerd.runc.v1.Options", Value: []byte{0xff}},
		"runtimeoptions.v1.Options:":            {TypeUrl: "runtimeoptions.v1.Options", Value: []byte("toml")},
		"containerd.rkt.v1.Options: this shim":  {TypeUrl: "containerd.rkt.v1.Options", Value: protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)},
		"the configuration in them":             table("BinaryName: x"),
		`NoNewKeyring: yes is not a bool`:       table("NoNewKeyring = 'yes'"),
		`ShimCgroup: 3 is not a string`:         table("ShimCgroup = 3"),
		`IoUid: -1 is not an id`:                table("IoUid = -1"),
		`IoGid: 4294967296 is not an id`:        table("IoGid = 4294967296"),
		`IoGid: 1.5 is not an id`:               table("IoGid = 1.5"),
		`"relative/path", is not absolute`:      path("relative/path"),
		"/no/such/file: no such file":           path("/no/such/file"),
		fifo + " is not a file":                 path(fifo),
		dir + " is not a file":                  path(dir),
		long + " is longer than":                path(long),
	} {
		_, _, err := Parse(in)
		if !errdefs.IsInvalidArgument(err) || !strings.HasPrefix(err.Error(), "runtime options: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want invalid argument with %s", err, want)
		}
	}
	if IsKnown(&anypb.Any{TypeUrl: "example.com/My.Options"}) {
		t.Error("a type of nobody is known")
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range []proto.Message{
		&Options{Stage1: "oci"}, &runc.Options{IoUid: 1, BinaryName: "x"}, &generic.Options{ConfigBody: []byte(defaultTable)},
	} {
		a := pack(f, m)
		f.Add(a.TypeUrl, a.Value)
	}
	f.Fuzz(func(t *testing.T, url string, value []byte) {
		a := &anypb.Any{TypeUrl: url, Value: value}
		var g generic.Options
		if strings.HasSuffix(url, messageOf(&g)) && proto.Unmarshal(value, &g) == nil && g.ConfigPath != "" {
			t.Skip("no files of the fuzzer's choice")
		}
		o, _, err := Parse(a)
		if (err == nil) == (o == nil) {
			t.Errorf("%v, %v", o, err)
		}
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v is not an invalid argument", err)
		}
		if err == nil && !IsKnown(a) {
			t.Errorf("%q was read and is not known", url)
		}
	})
}
