package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// probeLimit is the time limit of one group of probes.
const probeLimit = 2 * time.Minute

// namespaces that a container tries to make for itself. A mount of cgroups shows the processes of others
// only in the container's own PID namespace, so there are sets without a new one.
const (
	mountNamespaces  = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP
	furtherNamespace = mountNamespaces | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
)

// probe is a group of ways out of a container. Each group has a process of its own in each set of
// namespaces, because what it does there would change the verdicts of others.
type probe struct {
	name  string
	flags uintptr // the namespaces that it needs; none: it is tried in the container's own
	try   func(t target, say func(name string, err error))
}

func probes() []probe {
	return []probe{
		{"processes", 0, target.probeProcesses},
		{"devices", 0, target.probeDevices},
		{"descriptors", 0, target.probeDescriptors},
		{"locks", 0, target.probeLocks},
		{"chroot", 0, target.probeChroot},
		{"keyring", 0, target.probeKeyring},
		{"kernel", furtherNamespace, target.probeKernelFiles},
		{"types", furtherNamespace, target.probeTypes},
		{"masks", furtherNamespace, target.probeMasks},
		{"mounts", furtherNamespace, target.probeMountIDs},
		{"root", mountNamespaces, target.probeRoot},
		{"cgroups", mountNamespaces, target.probeCgroups},
	}
}

// holes tries a fixed list of ways out of the container, in its own namespaces and in all that it can make,
// and reports a verdict on each. With "wait" it then waits for the end of its input, with "sleep" for ever.
func (t target) holes(args []string) {
	if len(args) == 2 && args[0] == "probe" {
		t.probe(args[1])
		return
	}
	for _, p := range probes() {
		if p.flags == 0 {
			run(p, "", 0)
			continue
		}
		run(p, "as administrator, ", p.flags)
		run(p, "in a user namespace, ", p.flags|unix.CLONE_NEWUSER)
	}
	ready()
	switch {
	case slices.Contains(args, "wait"):
		_, _ = io.Copy(io.Discard, os.Stdin)
	case slices.Contains(args, "sleep"):
		for {
			time.Sleep(time.Hour)
		}
	}
}

// probe tries one group of ways, in the namespaces that this process was started in.
func (t target) probe(name string) {
	i := slices.IndexFunc(probes(), func(p probe) bool { return p.name == name })
	probes()[i].try(t, func(name string, err error) { sayHole(name, err) })
}

// run has a process try one group in new namespaces. What it says gets the prefix.
func run(p probe, prefix string, flags uintptr) {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/attacker", "holes", "probe", p.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.Output()
	for name, verdict := range loot.Holes(string(out)) {
		loot.Say(os.Stdout, loot.Hole{Name: prefix + name, Verdict: verdict})
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		fmt.Fprintf(os.Stderr, "probe %s%s: %v: %s\n", prefix, p.name, err, exit.Stderr)
	}
	if flags != 0 {
		sayHole(prefix+"namespaces for "+p.name, refusal(err))
	}
}

// refusal returns the errno for which a process could not be started. How it ended later is no refusal.
func refusal(err error) error {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return nil
}

// errCovered is the verdict on a way that leads to nothing that the container lacked.
var errCovered = errors.New("nothing new")

func sayHole(name string, err error) {
	verdict := loot.Open
	if err != nil {
		verdict = err.Error()
		if errno := unix.Errno(0); errors.As(err, &errno) {
			verdict = unix.ErrnoName(errno)
		}
	}
	loot.Say(os.Stdout, loot.Hole{Name: name, Verdict: verdict})
}

// opens reports whether a file can be opened for writing. Nothing is written.
func opens(file string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// reads reports whether a file has something to read.
func reads(file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if n, err := unix.Read(fd, make([]byte, 16)); err != nil || n > 0 {
		return err
	}
	return errCovered
}

// openOnce returns nil if at least one of the errors is nil, and otherwise the first error.
func openOnce(errs []error) error {
	if len(errs) == 0 || slices.Contains(errs, nil) {
		return nil
	}
	return errs[0]
}

// probeDevices opens the devices in /dev, and nodes that it makes.
func (t target) probeDevices(say func(string, error)) {
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 {
			say("device /dev/"+e.Name(), opens("/dev/"+e.Name()))
		}
	}
	for _, d := range [][3]uint32{
		{unix.S_IFBLK, 7, 0}, {unix.S_IFBLK, 8, 0}, {unix.S_IFBLK, 252, 0}, {unix.S_IFBLK, 253, 0}, {unix.S_IFBLK, 254, 0}, {unix.S_IFBLK, 259, 0},
		{unix.S_IFCHR, 1, 1}, {unix.S_IFCHR, 1, 2}, {unix.S_IFCHR, 1, 4}, {unix.S_IFCHR, 1, 11}, {unix.S_IFCHR, 4, 0}, {unix.S_IFCHR, 5, 1},
		{unix.S_IFCHR, 10, 229}, {unix.S_IFCHR, 10, 232}, {unix.S_IFCHR, 10, 237},
	} {
		var errs []error
		for _, dir := range []string{"/tmp", "/dev", "/dev/shm"} {
			errs = append(errs, openNode(fmt.Sprintf("%s/hole-%d", dir, os.Getpid()), d[0], d[1], d[2]))
		}
		kind := map[uint32]string{unix.S_IFBLK: "block", unix.S_IFCHR: "character"}[d[0]]
		say(fmt.Sprintf("device %s %d:%d by mknod", kind, d[1], d[2]), openOnce(errs))
	}
}

func openNode(node string, kind, major, minor uint32) error {
	if err := unix.Mknod(node, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return err
	}
	defer os.Remove(node)
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	// A device without a driver was looked for: the device's rules let the open pass.
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// probeDescriptors lists what this process has inherited beside its streams. The go command's own
// descriptors are close-on-exec, and the parent's as well.
func (t target) probeDescriptors(say func(string, error)) {
	none := error(errCovered)
	for fd := 3; fd < 256; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // its own: Go's poller
		}
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		none = nil
		say("an inherited descriptor of "+strings.TrimRight(link, ":[]0123456789"), nil)
	}
	say("an inherited descriptor", none)
}

// probeChroot leaves the root by a directory above a new root. Where the root was made by chroot(2) alone, that
// leads to the host's.
func (t target) probeChroot(say func(string, error)) {
	err := unix.Chroot("/vol")
	if err == nil {
		for range 16 {
			_ = unix.Chdir("..")
		}
		err = unix.Chroot(".")
	}
	if err == nil {
		err = t.anySecret()
	}
	say("out of the root by chroot", err)
}

// anySecret reports whether a secret of the host is below the root.
func (t target) anySecret() error {
	var errs []error
	for _, secret := range t.secrets {
		var st unix.Stat_t
		errs = append(errs, unix.Stat(secret, &st))
	}
	return openOnce(errs)
}

// probeKeyring joins session keyrings.
func (t target) probeKeyring(say func(string, error)) {
	_, err := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, -3 /* KEY_SPEC_SESSION_KEYRING */, 0, 0, 0)
	say("the session keyring", err)
	_, err = unix.KeyctlJoinSessionKeyring("hole")
	say("join a session keyring by name", err)
}
