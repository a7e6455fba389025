package main

import (
	"fmt"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/nfpm/v2"
)

// machinesName is the name of the package of virtual machines: the stage1 kvm, and the kernel that its
// machines boot. It is a package of its own because of its size, its licence, and because it needs QEMU.
const machinesName = name + "-kvm"

const machinesDescription = `stage1 for containerd-shim-rkt whose pods are virtual machines
The stage1 kvm of containerd-shim-rkt-v1 runs every pod in a virtual machine of QEMU. The
package has the stage1 and Debian's kernel for its machines.`

// kernel is Debian's package of the kernel of machines.
type kernel struct{ name, version, sum string }

// parseKernel reads the three words.
func parseKernel(text string) (*kernel, error) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return nil, fmt.Errorf("-machines %q: it is not name, version and sum of a package", text)
	}
	return &kernel{words[0], words[1], words[2]}, nil
}

// describeMachines says what the package of machines is, and what it needs. The link of its runtime is in
// the main package, which has this version: docs/adr/0046-a-package-of-machines.md. QEMU 8 has no
// virtiofsd any more.
func describeMachines(info *nfpm.Info, format string, packager nfpm.Packager) {
	info.Description, info.License = machinesDescription, "Apache-2.0 AND GPL-2.0-only"
	copied := *info // because packager changes it
	version := strings.TrimPrefix(packager.ConventionalFileName(&copied), machinesName)[1:]
	if format == "deb" {
		version, _, _ = strings.Cut(version, "_")
		info.Depends = []string{name + " (= " + version + ")", "qemu-system-x86 (>= 1:7.2)", "qemu-system-x86 (<< 1:8)"}
		return
	}
	version = strings.TrimSuffix(version, ".rpm")
	version = strings.TrimSuffix(version, filepath.Ext(version)) // the architecture
	info.Depends = []string{name + " = " + version, "/usr/bin/qemu-system-x86_64", "/usr/lib/qemu/virtiofsd"}
	info.RPM.Summary, _, _ = strings.Cut(machinesDescription, "\n")
}

// component describes Debian's package, as a part of the package of machines.
func (k *kernel) component() cdx.Component {
	url := "pkg:deb/debian/" + k.name + "@" + k.version + "?arch=amd64"
	return cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeOS, Name: k.name, Version: k.version, PackageURL: url,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: k.sum}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "GPL-2.0-only"}}},
		ExternalReferences: &[]cdx.ExternalReference{{
			Type: cdx.ERTypeSourceDistribution, URL: "https://snapshot.debian.org/package/linux/" + k.version + "/",
		}},
	}
}
