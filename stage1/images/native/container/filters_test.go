package container

import (
	"bytes"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func allowing(calls ...string) *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls:      []specs.LinuxSyscall{{Names: calls, Action: specs.ActAllow}},
	}
}

func TestAProfileIsCompiledAgainOnlyIfItIsAnother(t *testing.T) {
	var f Filters
	first, _, err := f.compile(allowing("read"))
	if err != nil || len(first) == 0 {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	again, _, err := f.compile(allowing("read"))
	if err != nil || &again[0] != &first[0] {
		t.Errorf("an equal profile was compiled again: %v", err)
	}
	other, _, err := f.compile(allowing("read", "write"))
	if err != nil || bytes.Equal(other, first) {
		t.Errorf("another profile got the same program: %v", err)
	}
	if _, _, err := f.compile(&specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_NONE"}); err == nil {
		t.Error("an unknown action passes")
	}
	if still, _, err := f.compile(allowing("read", "write")); err != nil || &still[0] != &other[0] {
		t.Errorf("a failure has cost what was remembered: %v", err)
	}
	if program, _, err := f.compile(nil); program != nil || err != nil {
		t.Errorf("without a profile: %d bytes, %v", len(program), err)
	}
}

func TestEqualProfilesAreShared(t *testing.T) {
	var f Filters
	a, b := allowing("read"), allowing("read")
	if f.Share(a) != a || f.Share(nil) != nil {
		t.Error("with nothing remembered there is nothing to share")
	}
	if _, _, err := f.compile(a); err != nil {
		t.Fatal(err)
	}
	if f.Share(b) != a {
		t.Error("an equal profile is kept twice")
	}
	if c := allowing("write"); f.Share(c) != c {
		t.Error("another profile was replaced")
	}
}
