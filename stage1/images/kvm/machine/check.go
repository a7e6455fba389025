package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Supported returns an error if there are no machines on the architecture of this program.
func Supported() error { return supported(runtime.GOARCH) }

// supported knows one architecture: kernel, QEMU and the program of the probe are for it.
func supported(arch string) error {
	if arch != "amd64" {
		return fmt.Errorf("virtual machines are for amd64 only, and this host is %s", arch)
	}
	return nil
}

// Needs returns the paths of the files that decide whether a machine can boot.
func (p Probe) Needs() []string {
	return []string{qemu, virtiofsd, p.Kernel, p.Modules, kvmDevice, p.Memo}
}

// Check returns an error for each thing that a machine lacks here. It boots nothing: with the word KVM, it
// knows what an earlier probe of this boot has found out. dir is a directory in which it may write.
func (p Probe) Check(word Accel, dir string) error {
	if err := Supported(); err != nil {
		return err
	}
	if err := p.CheckFiles(); err != nil {
		return err
	}
	return errors.Join(verify(p.Kernel, p.KernelSum, dir), verify(p.Modules, p.ModulesSum, dir), p.checkAccel(word))
}

// ofKernel says where the kernel and its modules come from.
const ofKernel = "install the package containerd-shim-rkt-kvm or, in a checkout, run make kvm"

// CheckFiles returns an error for each file that VMs lack here. The error says how to get it.
func (p Probe) CheckFiles() error {
	var all []error
	for _, f := range []struct{ path, from string }{
		{qemu, "Debian's package qemu-system-x86 has it"},
		{virtiofsd, "QEMU 7, of Debian 12, has it, and later releases do not"},
		{p.Kernel, ofKernel},
		{p.Modules, ofKernel},
	} {
		if st, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
			all = append(all, fmt.Errorf("%s is missing: %s", f.path, f.from))
		} else if err != nil {
			all = append(all, err)
		} else if !st.Mode().IsRegular() {
			all = append(all, fmt.Errorf("%s is no file", f.path))
		}
	}
	return errors.Join(all...)
}

// checkAccel returns an error if Choose would, without a probe: while none was made, KVM is not in doubt.
func (p Probe) checkAccel(word Accel) error {
	switch word {
	case TCG, Auto:
		return nil
	case KVM:
	default:
		return fmt.Errorf("there is no accelerator %q: it is kvm, tcg or auto", word)
	}
	if _, err := os.Stat(kvmDevice); err != nil {
		return fmt.Errorf("this host has no KVM, and accel is neither auto nor tcg: %w", err)
	}
	now, err := p.now()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(p.Memo)
	if err != nil {
		return nil // no probe was made
	}
	var known finding
	if json.Unmarshal(text, &known) != nil || known.Failure == "" {
		return nil
	}
	if now.Failure = known.Failure; now != known {
		return nil // it is of another kernel, QEMU or boot
	}
	return fmt.Errorf("KVM runs no guests here, and accel is neither auto nor tcg: %s", known.Failure)
}
