package machine

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Accel is how QEMU executes the instructions of a machine.
type Accel string

// KVM needs a processor and a host that let it run guests. TCG is QEMU's translator: it works
// everywhere, and is some ten times slower.
const (
	KVM Accel = "kvm"
	TCG Accel = "tcg"
)

// Share is a directory of the host that the machine mounts as virtiofs.
type Share struct {
	Tag string // by which the guest mounts it
	Dir string // what is mounted below it later is visible in the guest if its mount is shared
	// Tree is a detached mount (open_tree(2)), or nil. virtiofsd, and no other process, has it mounted on Dir.
	// Boot closes it.
	Tree *os.File
	// Cache is virtiofsd's cache mode: auto, always or none. "" is auto. With auto the guest reads a file
	// again each time that it is opened, with always when its size or time has changed.
	Cache string
	// Timeout is how long the guest relies on names, sizes and times, in whole seconds. Until then a file that
	// has grown ends for the guest where it ended before. With 0 the guest asks each time, also before each read(2).
	Timeout time.Duration
}

// Config describes a machine.
type Config struct {
	Kernel  string // an ELF vmlinux
	Modules string // a cpio archive with the modules of the kernel, which Init loads
	Init    string // the static program that becomes /init
	// KernelSum and ModulesSum are SHA-256 sums in hexadecimal; "" is any file's.
	KernelSum, ModulesSum string
	Cmdline               string // appended to the machine's own

	CPUs   int
	Memory int64 // bytes, a multiple of a MiB
	// MaxCPUs and MaxMemory are the bounds of Resize; 0 stands for CPUs and Memory. Each byte more of
	// MaxMemory needs 1/64 byte of the guest's memory when it is used.
	MaxCPUs   int
	MaxMemory int64
	Accel     Accel
	Type      Type // "" is Q35

	Shares []Share
	NICs   []NIC // of a MicroVM
	// Channel is a connected unix socket: the guest has the other end as the virtio-serial port
	// named ChannelName. Boot closes it.
	Channel *os.File
	// Console is the write end of a pipe to which the guest's console goes. What the pipe does not
	// take at once is lost. Boot closes it.
	Console *os.File
	Dir     string // a directory of root's that is the machine's alone, for sockets

	// Booted waits until the guest has come to where it waits for its pod: until then, it has nothing to do with one. With
	// nil, Boot returns when the guest begins.
	Booted func(context.Context) error `json:"-"`
	// Saved is a directory of root's. If it is set, a machine is saved there when Booted has returned, and later machines
	// like it are restored, in place of their boot: their memory is that of the saved one. All have drawn the same random
	// numbers until then.
	Saved string
	Log   io.Writer `json:"-"` // for what went wrong with saved machines, which is no error of Boot

	// Cgroup has the directories of the cgroups to which the machine's processes are moved.
	Cgroup []string
	// Users are the ids of which QEMU gets one; the zero value stands for a default.
	Users Users
	// Children reaps the processes.
	Children *proc.Children
}

// ChannelName is the name of the virtio-serial port of the channel:
// /dev/virtio-ports/ChannelName where udev runs, otherwise the name in
// /sys/class/virtio-ports/vport*/name.
const ChannelName = "org.rkt.agent"

// sums is where machines remember which files had their sums.
const sums = "/run/containerd-shim-rkt/kvm-sums"

// quitTime is how long QEMU has to end after it was told to.
const quitTime = 5 * time.Second

// Machine is a machine that Boot has booted. Its methods may be called at any time, concurrently.
type Machine interface {
	// PID returns the pid of QEMU.
	PID() int
	// AddNIC adds a network interface. The guest sees it soon after. Of a MicroVM it returns the device of this tap that
	// the machine has booted with. Its other changes, and those of disks, are a FixedError.
	AddNIC(context.Context, NIC) (Device, error)
	// AddDisks adds one to MaxDisks disks as one device, which are removed together. The guest sees them soon after.
	AddDisks(context.Context, ...Disk) (Device, error)
	// RemoveDevice returns when the guest has given up a device that was added, and QEMU has closed
	// its files. A guest may refuse that, or never answer.
	RemoveDevice(context.Context, Device) error
	// Resize gives the guest as many processors and as much memory, within the bounds of Config. The
	// guest has added processors at once, and they are offline. They stay when fewer are wanted:
	// the guest sets them offline. The guest adds memory soon after, if it has the module
	// virtio_mem, and gives up memory as far as it can.
	Resize(ctx context.Context, cpus int, memory int64) error
	// Size returns the processors and the memory that the guest has.
	Size(context.Context) (cpus int, memory int64, err error)
	// Forget removes the saved machine from which this one was restored, if it was: later ones boot. It does not if this one's
	// processes were killed, which says nothing of the saved one.
	Forget() error
	// Stop ends the machine without asking the guest, and returns when none of its processes is
	// left. It may be called any number of times. QEMU has until ctx is done, and five seconds at
	// the most, before it is killed.
	Stop(ctx context.Context) error
	// Done is closed when the machine has ended and none of its processes is left.
	Done() <-chan struct{}
	// Err returns nil if the guest has powered off or Stop has been called, otherwise why the
	// machine has ended. It waits until Done is closed.
	Err() error
}

// machine is a machine of QEMU.
type machine struct {
	config Config
	memory *memory // is closed after Boot
	qemu   *process
	copier *process // of the memory of a saved machine, or nil
	origin string   // the directory of the saved machine, or ""
	user   *os.File // keeps the id of QEMU's user
	qmp    *monitor
	done   chan struct{}
	err    error // set before done is closed

	resizing chan struct{} // has one token

	mu      sync.Mutex
	shares  []*process
	stopped bool
	ports   [ports]bool        // that have a device
	devices map[Device]*device // that were added
	added   int                // devices, since the boot
}

var _ Machine = (*machine)(nil)

// supervise waits for the first process of the machine that ends, and ends the others.
func (m *machine) supervise() {
	lasting := append([]*process{m.qemu}, m.shares...)
	ended := make(chan *process, len(lasting))
	for _, p := range lasting {
		go func() {
			<-p.Done()
			ended <- p
		}()
	}
	var first *process // nil: QEMU has stopped the guest
	select {
	case first = <-ended:
	case <-m.qmp.stopped:
	}
	m.kill()
	m.wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopped {
		m.err = m.reason(first)
	}
	close(m.done)
}

// reason returns why a machine has ended whose process first has ended as the first one.
func (m *machine) reason(first *process) error {
	if first == nil {
		return guestError("QEMU cannot execute the guest any more: " + m.qemu.said())
	}
	switch m.qmp.shutdown() {
	case "":
		if m.crashed() {
			return guestError(first.failure().Error())
		}
		return first.failure()
	case "guest-shutdown":
		return nil
	case "guest-reset":
		return guestError("the guest has reset itself, as its kernel does when it panics")
	default:
		return guestError("the guest has ended: " + m.qmp.shutdown())
	}
}

// crashed reports whether QEMU has ended by a fault of its own, as it does if the kernel refuses the state of a
// processor.
func (m *machine) crashed() bool {
	if m.qemu == nil {
		return false
	}
	switch m.qemu.Wait().Signal {
	case int(unix.SIGSEGV), int(unix.SIGABRT), int(unix.SIGILL), int(unix.SIGFPE):
		return true
	}
	return false
}

// guestError is a failure of the guest, or a crash of QEMU. It is not the error of a process that was killed, or of a host that
// lacks memory or room.
type guestError string

func (e guestError) Error() string { return string(e) }

func (m *machine) processes() []*process {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.shares)
	for _, p := range []*process{m.qemu, m.copier} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

func (m *machine) kill() {
	for _, p := range m.processes() {
		_ = p.Kill()
	}
}

// wait waits until no process is left.
func (m *machine) wait() {
	for _, p := range m.processes() {
		p.end()
	}
	if m.qmp != nil {
		m.qmp.close()
	}
	proc.CloseFiles(m.user)
}

// wasKilled reports whether QEMU or the copier was killed, by the kernel, because the pod has no memory left. A QEMU whose guest
// has shut down was not: supervise kills it when its virtiofsd has ended first.
func (m *machine) wasKilled() bool {
	if m.qemu != nil && closed(m.qmp.done) { // QEMU ends, or has ended
		select {
		case <-m.qemu.Done():
		case <-time.After(endsWithin):
		}
	}
	killed := func(p *process) bool { return p != nil && closed(p.Done()) && p.Wait().Signal == int(unix.SIGKILL) }
	if killed(m.qemu) {
		<-m.qmp.done // it knows of a shutdown
		return m.qmp.shutdown() == ""
	}
	return killed(m.copier)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (m *machine) PID() int { return m.qemu.PID() }

func (m *machine) Stop(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, quitTime)
	defer cancel()
	if err := m.qmp.execute(ctx, "quit", nil, nil); err == nil {
		select {
		case <-m.done:
		case <-ctx.Done():
		}
	}
	m.kill()
	<-m.done
	return nil
}

func (m *machine) Done() <-chan struct{} { return m.done }

func (m *machine) Err() error {
	<-m.done
	return m.err
}
