package main

// version1 has systemd use version 1 of cgroups.
const version1 = " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"

// arguments returns QEMU's arguments. QEMU's standard output is the port to which the tests
// write.
func (m machine) arguments(p payload, payload, console string) []string {
	boot := m.arch.boot
	if p.version1 {
		boot += version1
	}
	if m.arch.name == "amd64" && !m.arch.foreign() {
		boot += clockArgument()
	}
	return append([]string{
		"-accel", "tcg,thread=multi,tb-size=512", "-smp", "2", "-m", "2048",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-kernel", m.kernel, "-initrd", m.initramfs,
		"-append", "console=" + m.arch.console + " quiet panic=-1 systemd.show_status=0 mitigations=off audit=0" + boot,
		"-serial", "file:" + console,
		// All guests share the root file system, and changes to it are discarded.
		"-drive", "id=root,file=" + m.root + ",format=raw,if=none,cache=unsafe,snapshot=on",
		"-device", "virtio-blk-pci,drive=root",
		"-drive", "id=payload,file=" + payload + ",format=raw,if=none,readonly=on",
		"-device", "virtio-blk-pci,drive=payload",
		"-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
		"-device", "virtio-serial-pci", "-chardev", "stdio,id=tests,signal=off",
		"-device", "virtserialport,chardev=tests,name=org.rkt.tests",
	}, m.arch.processor...)
}
