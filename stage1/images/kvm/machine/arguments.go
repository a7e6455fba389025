package machine

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// qemu is the path of Debian's QEMU.
const qemu = "/usr/bin/qemu-system-x86_64"

// tbSize is the size in MiB of the buffer in which TCG keeps translated code. Its default grows with
// the host's memory. When it is full, QEMU forgets everything in it, and the lists that it has of it, which are a
// sixth of its size; what runs is translated again. So it has to be larger than the boot needs, 48 MiB, and less
// than the first container would fill.
const tbSize = 56

// sandbox is QEMU's own filter of system calls.
const sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// commandLine collects the arguments of QEMU and the files that it inherits.
type commandLine struct {
	args    []string
	files   []*os.File // descriptors from 3 on
	monitor *os.File   // this process's end of the monitor's socket
	peers   []*os.File // QEMU's ends of the monitor and of shares
}

// newCommandLine returns the command line of a machine without shares and network interfaces.
func newCommandLine(c *Config) (*commandLine, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, err
	}
	peer := os.NewFile(uintptr(pair[1]), "monitor")
	l := &commandLine{monitor: os.NewFile(uintptr(pair[0]), "monitor"), peers: []*os.File{peer}}
	l.add("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-sandbox", sandbox)
	l.add("-chardev", "socket,id=monitor,fd="+l.pass(peer), "-mon", "chardev=monitor,mode=control", "-S")
	l.add("-machine", c.Type.board()+",memory-backend=memory,dump-guest-core=off")
	switch c.Accel {
	case KVM:
		l.add("-accel", "kvm", "-cpu", "host")
	case TCG:
		l.add("-accel", "tcg,thread=multi,tb-size="+strconv.Itoa(tbSize), "-cpu", "max")
	}
	l.size(c)
	l.add("-kernel", "/"+kernel, "-initrd", "/"+initrd, "-append", kernelArguments(c)) // in the jail
	l.add("-add-fd", "set=1,fd="+l.pass(c.Console), "-chardev", "file,id=console,append=on,path=/dev/fdset/1", "-serial", "chardev:console")
	l.add("-device", c.Type.virtio("serial")+",max_ports=2")
	l.add("-chardev", "socket,id=channel,fd="+l.pass(c.Channel), "-device", "virtserialport,chardev=channel,name="+ChannelName)
	if c.Type == Q35 {
		for i := range ports + len(c.Shares) {
			l.add("-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", port(i), 1+i))
		}
	}
	l.add("-object", "rng-builtin,id=random", "-device", c.Type.virtio("rng")+",rng=random")
	return l, nil
}

// kernelArguments returns the command line of the kernel.
func kernelArguments(c *Config) string {
	line := "console=ttyS0 quiet panic=-1 reboot=t"
	if c.Accel == TCG {
		// The kernel panics if its timer does not tick a few times within 50 ms of the processor's. On a
		// busy host QEMU's thread of timers gets no turn in that time. With KVM the kernel does not look.
		line += " no_timer_check"
		if c.Type == MicroVM {
			// The kernel would compare the counter with its own ticks, of which a busy host loses some.
			line += " " + clockArgument() + " tsc=nowatchdog"
		}
	}
	if c.MaxMemory > c.Memory {
		// The guest keeps most of what it gets free of what it could not move when it is to give it up.
		line += " memhp_default_state=online memory_hotplug.online_policy=auto-movable"
		// Otherwise the kernel keeps 64 MiB for devices that cannot reach memory above 4 GiB.
		line += " swiotlb=noforce"
	}
	if c.Cmdline != "" {
		line += " " + c.Cmdline
	}
	return line
}

func (l *commandLine) add(args ...string) { l.args = append(l.args, args...) }

// close closes QEMU's ends of connections, so that they end with QEMU.
func (l *commandLine) close() { proc.CloseFiles(l.peers...) }

// pass has QEMU inherit a file, and returns the number of its descriptor.
func (l *commandLine) pass(f *os.File) string {
	l.files = append(l.files, f)
	return strconv.Itoa(2 + len(l.files))
}
