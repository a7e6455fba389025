package machine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThereAreMachinesOnAmd64Only(t *testing.T) {
	if err := supported("amd64"); err != nil {
		t.Error(err)
	}
	if err := supported("arm64"); err == nil || !strings.Contains(err.Error(), "amd64 only, and this host is arm64") {
		t.Error(err)
	}
}

func TestACheckNamesWhatMachinesLack(t *testing.T) {
	if _, err := os.Stat(qemu); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	p := Probe{Kernel: filepath.Join(dir, "vmlinux"), Modules: filepath.Join(dir, "modules"), Memo: filepath.Join(dir, "run/probe")}
	expect := func(word Accel, wants ...string) {
		t.Helper()
		err := p.Check(word, t.TempDir())
		if len(wants) == 0 && err != nil {
			t.Errorf("%s: %v", word, err)
		}
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %q", word, err, want)
			}
		}
	}
	const from = " is missing: install the package containerd-shim-rkt-kvm or, in a checkout, run make kvm"
	expect(TCG, p.Kernel+from, p.Modules+from)
	for _, path := range []string{p.Kernel, p.Modules} {
		if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect(TCG)
	expect("hvf", `there is no accelerator "hvf"`)
	p.ModulesSum = fmt.Sprintf("%x", sha256.Sum256([]byte("text")))
	expect(TCG)
	p.ModulesSum = strings.Repeat("0", 64)
	expect(TCG, p.Modules+" has the SHA-256 sum ", "and should have 000")
	p.ModulesSum = ""

	if _, err := os.Stat(kvmDevice); err != nil {
		expect(KVM, "this host has no KVM")
		return
	}
	expect(KVM) // nothing is known yet
	if _, err := p.remembered(t.Context(), func(context.Context) error { return guestError("broken") }); err != nil {
		t.Fatal(err)
	}
	expect(KVM, "KVM runs no guests here", "broken")
	expect(Auto)
	if err := os.WriteFile(p.Kernel, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(KVM)
}
