package main

import (
	"fmt"
	"runtime"
)

// architecture is one that the guest can have. QEMU emulates all of them, also the machine's own.
type architecture struct {
	name        string // as Go and Debian name it
	qemu        string
	qemuPackage string
	processor   []string // QEMU's arguments for processor and board
	console     string
	boot        string // further arguments of the kernel
	crypto      string // directory of its modules for the processor
}

var architectures = []*architecture{
	{
		name: "amd64", qemu: "qemu-system-x86_64", qemuPackage: "qemu-system-x86",
		// An older processor model is faster: features of newer ones (SMAP, AVX) cost QEMU a
		// third more time.
		processor: []string{"-cpu", "Nehalem", "-M", "q35"},
		console:   "ttyS0", boot: " tsc=reliable", crypto: "arch/x86/crypto",
	},
	{
		name: "arm64", qemu: "qemu-system-aarch64", qemuPackage: "qemu-system-arm",
		processor: []string{"-cpu", "cortex-a57", "-M", "virt"},
		console:   "ttyAMA0", crypto: "arch/arm64/crypto",
	},
}

func findArchitecture(name string) (*architecture, error) {
	for _, a := range architectures {
		if a.name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no guest of the architecture %q", name)
}

// foreign reports whether this machine cannot execute programs of the architecture.
func (a *architecture) foreign() bool { return a.name != runtime.GOARCH }
