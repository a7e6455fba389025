package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	machinesName = packageName + "-kvm"
	machinesLink = "/usr/bin/containerd-shim-rkt-kvm-v1"
)

// The guest has no QEMU, and no machine boots in it: it looks at the packages' dependencies and files.
func TestThePackageOfMachinesComesAndGoesUnderAPod(t *testing.T) {
	eachFormat(t, func(t *testing.T, m *target) {
		machines := map[string]string{"v0.1.0": m.file(machinesName, "v0.1.0"), "v0.1.1": m.file(machinesName, "v0.1.1")}
		if m.name == "deb" {
			m.needs(machines["v0.1.0"])
		}
		m.installs("v0.1.0")
		if out, err := exec.CommandContext(t.Context(), "rktctl", "stage1", "list").CombinedOutput(); err != nil || strings.Contains(string(out), "kvm") {
			t.Errorf("without the package: %v, %s", err, out)
		}
		run(t, nil, append(slices.Clone(m.install), machines["v0.1.0"])...)
		m.expectMachines(true)
		n := m.node()
		p, container := n.must("rkt")

		both := []string{m.file(packageName, "v0.1.1"), machines["v0.1.1"]}
		run(t, nil, append(slices.Clone(m.install), both...)...)
		m.has("v0.1.1")
		m.expectMachines(true)
		n.works("both upgraded", container)

		run(t, nil, append(slices.Clone(m.remove[:len(m.remove)-1]), machinesName)...)
		m.expectMachines(false)
		n.works("machines removed", container)
		if to, err := os.Readlink(machinesLink); err != nil || to != filepath.Base(installedShim) {
			t.Errorf("the pods of machines that live have no shim: %q, %v", to, err)
		}
		p.remove()
		m.purges()
		m.nothingIsLeft()
	})
}

// needs installs a package that has the name and version of QEMU's for the time of the test, after it has seen
// that dpkg wants that and the other package.
func (m *target) needs(machines string) {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), "dpkg", "--install", machines).CombinedOutput()
	for _, want := range []string{"containerd-shim-rkt (= 0.1.0)", "qemu-system-x86 (>= 1:7.2)"} {
		if err == nil || !strings.Contains(string(out), want) {
			m.t.Errorf("dpkg does not want %s: %v, %s", want, err, out)
		}
	}
	run(m.t, nil, "dpkg", "--purge", machinesName)
	const qemu = "qemu-system-x86"
	dir := filepath.Join(m.t.TempDir(), qemu)
	if err := os.MkdirAll(filepath.Join(dir, "DEBIAN"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	control := "Package: " + qemu + "\nVersion: 1:7.2\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: stands for QEMU\n"
	if err := os.WriteFile(filepath.Join(dir, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		m.t.Fatal(err)
	}
	run(m.t, nil, "dpkg-deb", "--build", "--root-owner-group", dir, dir+".deb")
	run(m.t, nil, "dpkg", "--install", dir+".deb")
	m.t.Cleanup(func() { // the test's context has ended
		if out, err := exec.Command("dpkg", "--purge", qemu).CombinedOutput(); err != nil {
			m.t.Errorf("%v: %s", err, out)
		}
	})
}

// expectMachines looks for the files of the package, and for what rktctl says of them.
func (m *target) expectMachines(there bool) {
	m.t.Helper()
	for _, path := range []string{
		"/usr/libexec/containerd-shim-rkt/kvm/vmlinux", "/usr/libexec/containerd-shim-rkt/stage1/kvm/manifest",
		"/usr/share/containerd-shim-rkt/inventory-kvm", "/usr/share/doc/containerd-shim-rkt-kvm/copyright.kernel",
	} {
		if _, err := os.Stat(path); (err == nil) != there {
			m.t.Errorf("%s: %v", path, err)
		}
	}
	out, _ := exec.CommandContext(m.t.Context(), "rktctl", "doctor").CombinedOutput() // has found that no containerd runs
	text := string(out)
	lacks := strings.Contains(text, "kvm cannot boot machines on this node: /usr/bin/qemu-system-x86_64 is missing: Debian's package qemu-system-x86 has it")
	compared := strings.Count(text, "files below /usr are as they were installed")
	if there && (!lacks || compared != 2) || !there && (lacks || compared != 1) {
		m.t.Errorf("rktctl doctor says %s", text)
	}
}
