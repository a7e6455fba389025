package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/sassoftware/go-rpmutils"
)

// With RKT_TEST_KVM the packages of machines are made as a release makes them; make test-kvm does that. Otherwise
// their kernel and image are a few files, of which the program is a Go program.
func TestThePackagesOfMachinesHaveTheirFilesAndDependOnThisRelease(t *testing.T) {
	var made [2]map[string][]byte
	for i := range made {
		out := filepath.Join(t.TempDir(), "dist")
		if os.Getenv("RKT_TEST_KVM") == "" {
			makeSmall(t, out)
		} else {
			makeReal(t, i, out)
		}
		made[i] = read(t, out)
	}
	const deb, rpm, sbom = "containerd-shim-rkt-kvm_9.8.7_amd64.deb", "containerd-shim-rkt-kvm-9.8.7-1.x86_64.rpm", "containerd-shim-rkt-kvm-9.8.7-linux-amd64.cdx.json"
	if got := slices.Sorted(maps.Keys(made[0])); !slices.Equal(got, []string{sumsFile, rpm, sbom, deb}) {
		t.Fatalf("the release has %q", got)
	}
	for file, content := range made[0] {
		if !bytes.Equal(content, made[1][file]) {
			t.Errorf("%s differs", file)
		}
	}

	path := filepath.Join(t.TempDir(), deb)
	if err := os.WriteFile(path, made[0][deb], 0o644); err != nil {
		t.Fatal(err)
	}
	inDeb, contents := untar(t, bytes.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", path)), "./usr/")
	const inventory = "share/containerd-shim-rkt/inventory-kvm"
	want := map[string]string{inventory: inDeb[inventory]}
	for line := range strings.Lines(string(contents[inventory])) {
		path, is, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[path] = is
	}
	for path := range maps.Keys(inDeb) { // directories of the other package
		if slices.Contains([]string{"share/containerd-shim-rkt", "libexec/containerd-shim-rkt", "libexec/containerd-shim-rkt/stage1"}, path) {
			delete(inDeb, path)
		}
	}
	sameEntries(t, "the deb", inDeb, want)
	for _, path := range []string{
		"libexec/containerd-shim-rkt/kvm/vmlinux", "libexec/containerd-shim-rkt/kvm/modules", "libexec/containerd-shim-rkt/kvm/copyright",
		"libexec/containerd-shim-rkt/stage1/kvm/manifest", "libexec/containerd-shim-rkt/stage1/kvm/rootfs/agent", "share/doc/containerd-shim-rkt-kvm/copyright",
	} {
		if !strings.Contains(want[path], " file ") {
			t.Errorf("there is no %s", path)
		}
	}
	for path := range want {
		if strings.HasPrefix(path, "bin/") {
			t.Errorf("the package has %s, which would not outlive its removal below pods", path)
		}
	}
	fields := string(output(t, "dpkg-deb", "--field", path))
	if !strings.Contains(fields, "\nDepends: containerd-shim-rkt (= 9.8.7), qemu-system-x86 (>= 1:7.2), qemu-system-x86 (<< 1:8)\n") || !strings.Contains(fields, "\nArchitecture: amd64\n") {
		t.Errorf("the deb has the fields\n%s", fields)
	}

	p, err := rpmutils.ReadRpm(bytes.NewReader(made[0][rpm]))
	if err != nil {
		t.Fatal(err)
	}
	sameEntries(t, "the rpm", entriesOf(t, p), want)
	names, err := p.Header.GetStrings(rpmutils.REQUIRENAME)
	versions, err2 := p.Header.GetStrings(rpmutils.REQUIREVERSION)
	if i := slices.Index(names, name); err != nil || err2 != nil || i < 0 || versions[i] != "9.8.7-1" ||
		!slices.Contains(names, "/usr/bin/qemu-system-x86_64") || !slices.Contains(names, "/usr/lib/qemu/virtiofsd") {
		t.Errorf("the rpm needs %q %q: %v, %v", names, versions, err, err2)
	}

	var bom cdx.BOM
	if err := json.Unmarshal(made[0][sbom], &bom); err != nil {
		t.Fatal(err)
	}
	described := map[string]string{inventory: want[inventory]}
	kernels := 0
	for _, c := range *bom.Components {
		switch c.Type {
		case cdx.ComponentTypeFile:
			mode, _, _ := strings.Cut(want[c.Name], " ")
			described[c.Name] = mode + " file " + (*c.Hashes)[0].Value
		case cdx.ComponentTypeOS:
			kernels++
			if !strings.HasPrefix(c.Name, "linux-image-") || !strings.HasSuffix((*c.ExternalReferences)[0].URL, "/"+c.Version+"/") {
				t.Errorf("the kernel is %+v", c)
			}
		}
	}
	maps.DeleteFunc(want, func(_, is string) bool { return !strings.Contains(is, " file ") })
	sameEntries(t, "the SBOM", described, want)
	if kernels != 1 || bom.Metadata.Component.Name != machinesName {
		t.Errorf("the SBOM is of %s and has %d kernels", bom.Metadata.Component.Name, kernels)
	}
}

// makeReal makes the packages from a copy of the repository.
func makeReal(t *testing.T, i int, out string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 1+20*i))
	copyRepository(t, dir, []string{"077", "022"}[i])
	cmd := exec.CommandContext(t.Context(), "make", "release-kvm", "VERSION=v9.8.7", "REVISION=r1", "DIST="+out)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", fmt.Sprintf("TZ=Etc/GMT+%d", i))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release-kvm: %v: %s", err, out)
	}
}

// makeSmall makes the packages of a few files, as scripts/release-kvm does.
func makeSmall(t *testing.T, out string) {
	t.Helper()
	bin := t.TempDir()
	program, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(output(t, "go", "env", "GOROOT"))), "bin/gofmt"))
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		"kvm/vmlinux": []byte("kernel"), "kvm/modules": []byte("modules"), "kvm/copyright": []byte("GPL"),
		"stage1/kvm/manifest": []byte("{}"), "stage1/kvm/rootfs/agent": program,
	} {
		path = filepath.Join(bin, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"-machines", "linux-image-x 6.1-1 abc", "-source", "../..", "-bin", bin, "-arch", "amd64", "-version", "v9.8.7", "-epoch", "1700000000"}, {"-sums"},
	} {
		output(t, append([]string{"go", "run", "."}, append(args, "-out", out)...)...)
	}
}

func TestAKernelOfMachinesHasNameVersionAndSum(t *testing.T) {
	for _, text := range []string{"x", "linux-image-x 6.1-1", "linux-image-x 6.1-1 abc def"} {
		if k, err := parseKernel(text); err == nil {
			t.Errorf("%q is %v", text, k)
		}
	}
}
