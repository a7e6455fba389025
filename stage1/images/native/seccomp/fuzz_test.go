package seccomp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func FuzzAProgramIsOneThatTheKernelTakes(f *testing.F) {
	paths, err := filepath.Glob("testdata/profiles/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := new(specs.LinuxSeccomp)
		if json.Unmarshal(text, s) != nil {
			return
		}
		prog, _, err := Compile(s)
		if err != nil || prog == nil {
			return
		}
		if err := check(prog); err != nil {
			t.Fatal(err)
		}
		for _, a := range append(local().architectures, architecture{audit: 1}) {
			for _, number := range []uint32{0, 1, 56, 102, 117, 359, 1 << 30, 1<<30 | 59, 1 << 31, ^uint32(0)} {
				simulate(prog, &seccompData{number: number, arch: a.audit, args: [6]uint64{1, 2, 3}})
			}
		}
	})
}
