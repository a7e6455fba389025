package main

import "slices"

// hardware returns QEMU's arguments for the machine, without its disks.
func (m machine) hardware(initramfs, console string) []string {
	return slices.Concat([]string{
		"-accel", "tcg,thread=multi,tb-size=512", "-smp", "2", "-m", "2048",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-kernel", m.kernel, "-initrd", initramfs,
		"-append", "console=" + m.arch.console + " quiet panic=-1 systemd.show_status=0 audit=0 " + m.arch.boot,
		"-serial", "file:" + console,
		"-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
	}, m.arch.processor)
}

// arguments returns QEMU's arguments for the tests. QEMU's standard output is the port to which
// the tests write.
func (m machine) arguments(payload, console string) []string {
	return append(m.hardware(m.initramfs, console),
		// All guests share the root file system, and changes to it are discarded.
		"-drive", "id=root,file="+m.root+",format=raw,if=none,cache=unsafe,snapshot=on",
		"-device", "virtio-blk-pci,drive=root",
		"-drive", "id=payload,file="+payload+",format=raw,if=none,readonly=on",
		"-device", "virtio-blk-pci,drive=payload",
		"-device", "virtio-serial-pci", "-chardev", "stdio,id=tests,signal=off",
		"-device", "virtserialport,chardev=tests,name=org.rkt.tests",
	)
}
