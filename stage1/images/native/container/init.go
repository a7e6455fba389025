package container

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Init is the main function of the process that was made for an app or an exec. It never
// returns: the process becomes the program, or exits. main calls it first, in a goroutine
// that is locked to its thread. Descriptors 0 to 2 are the app's stdio, 3 is the
// supervisor's socket, 4 holds Prepared.Config, and 5 and above are Prepared.Files.
func Init() {
	runtime.LockOSThread()
	umask := unix.Umask(0) // files get exactly the given modes; hooks and the program get the old umask
	c, err := readConfig()
	if err != nil {
		fail(err, 1)
	}
	var p *program
	if c.Exec {
		p, err = (&execInit{c}).run()
	} else {
		p, err = (&appInit{builder: newBuilder(c), umask: umask}).run()
	}
	if err != nil {
		fail(err, 1)
	}
	err = p.replace()
	status := 126 // exit code of a shell for a program that it cannot execute
	if errors.Is(err, unix.ENOENT) {
		status = 127
	}
	fail(err, status)
}

func readConfig() (*config, error) {
	// The exec must close all descriptors from 3 on, also those that other packages have
	// opened.
	if err := unix.CloseRange(syncFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("mark descriptors close-on-exec: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(configFD, &st); err != nil {
		return nil, fmt.Errorf("stat the plan of the process: %w", err)
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		m, err := unix.Pread(configFD, b[n:], int64(n))
		if err != nil || m == 0 {
			return nil, fmt.Errorf("read the plan of the process: %w", err)
		}
		n += m
	}
	unix.Close(configFD)
	return decodeConfig(b)
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// appInit is the first process of an app.
type appInit struct {
	builder
	umask  int // with which this process was started
	labels labels
	path   string // of the program
}

// run prepares everything and waits until the app is started.
func (a *appInit) run() (*program, error) {
	err := inOrder(
		a.enterCgroups,
		a.unshareCgroups,
		func() error { return joinKeyring(a.Keyring, a.Process.SELinux) },
		a.raiseLimits,
		func() (err error) { a.labels, err = a.Process.openLabels(); return err },
		a.setNames,
		a.bringUpLoopback,
		a.awaitNetDevices,
		func() error { return writeSysctl(a.Sysctl) },
		a.buildRoot,
		a.outsideHooks,
		a.enterBottom,
		a.enterRoot,
		a.finishRoot,
		func() error { return a.labels.apply(&a.Process) },
		a.assume,
	)
	if err != nil {
		return nil, err
	}
	p, err := a.newProgram(a.path)
	if err != nil {
		return nil, err
	}
	if err := send(Message{Word: WordReady}); err != nil {
		return nil, err
	}
	await(WordStart)
	unix.Umask(int(a.Process.Umask))
	if a.Hooks != nil {
		err = a.Hooks.run("startContainer", a.Hooks.StartContainer, specs.StateCreated)
	}
	return p, err
}

// buildRoot makes the app's root file system, before it becomes "/".
func (a *builder) buildRoot() error {
	if a.Rootfs.Chroot {
		return a.openChroot()
	}
	if err := inOrder(a.bindRoot, a.openDev, a.mountAll); err != nil {
		return err
	}
	if !a.Rootfs.Populate {
		return nil
	}
	return inOrder(a.makeDevices, a.linkDevices)
}

// outsideHooks runs the hooks that need both the host's files and the complete root of the app:
// the supervisor runs the first ones of them.
func (a *appInit) outsideHooks() error {
	if a.RuntimeHooks {
		if err := send(Message{Word: WordHooks}); err != nil {
			return err
		}
		await(WordGo)
	}
	if a.Hooks == nil {
		return nil
	}
	defer unix.Umask(unix.Umask(a.umask))
	return a.Hooks.run("createContainer", a.Hooks.CreateContainer, specs.StateCreating)
}

// enterBottom prepares enterRoot. Only now are paths of the host not needed any more.
func (a *appInit) enterBottom() error {
	if a.Rootfs.Chroot {
		return nil
	}
	return EnterBottom()
}

// finishRoot does the steps that need the app's root as "/".
func (a *appInit) finishRoot() error {
	a.makeCwd()
	if err := a.stdio(); err != nil {
		return err
	}
	defer a.release()
	return inOrder(a.closeMounts, a.protect)
}

// makeCwd makes the working directory if it is missing. It ignores an error: entering the
// directory fails later, with a better text. target follows no magic links of /proc, so nothing
// is made outside of the root.
func (a *builder) makeCwd() {
	if fd, _, err := a.root.target(a.Process.Cwd, 0, false); err == nil {
		unix.Close(fd)
	}
}

func (a *appInit) stdio() error {
	if a.Terminal {
		return openConsole(a.ConsoleSize, a.dev, true)
	}
	return a.reopenNull()
}

// reopenNull replaces the host's null device in the app's stdio by the app's own. If an
// image brings its own /dev without a null device, the host's stays.
func (a *appInit) reopenNull() error {
	null := -1
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || !proc.IsNull(&st) {
			continue
		}
		if null < 0 {
			if null = a.openOwnNull(); null < 0 {
				return nil
			}
			defer unix.Close(null)
		}
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("make /dev/null descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// openOwnNull opens the app's null device, or returns -1 if that file is not the null
// device.
func (a *builder) openOwnNull() int {
	seen, err := a.openNull()
	if err != nil {
		return -1
	}
	defer unix.Close(seen)
	proc, err := openProcfs()
	if err != nil {
		return -1
	}
	defer proc.close()
	null, _ := proc.reopen(seen, unix.O_RDWR) // -1 if it fails
	return null
}

// setNames sets the names of the UTS namespace.
func (a *builder) setNames() (err error) {
	if a.Hostname != "" {
		err = doing(fmt.Sprintf("set hostname %q", a.Hostname), unix.Sethostname([]byte(a.Hostname)))
	}
	if a.Domainname != "" && err == nil {
		err = doing(fmt.Sprintf("set domainname %q", a.Domainname), unix.Setdomainname([]byte(a.Domainname)))
	}
	return err
}

// bringUpLoopback brings up the loopback interface of a new network namespace. The client
// may attach no network and so never bring it up.
func (a *builder) bringUpLoopback() error {
	if !a.Loopback {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // the kind of socket does not matter
	if err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return doing("bring up the loopback interface", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request))
}

func (a *appInit) unshareCgroups() error {
	if !a.CgroupNamespace {
		return nil
	}
	return doing("unshare the cgroup namespace", unix.Unshare(unix.CLONE_NEWCGROUP))
}

func (a *appInit) assume() (err error) {
	a.path, err = a.config.assume()
	return err
}

// execInit is a further process of an app. It is in all namespaces of the app.
type execInit struct{ *config }

func (e *execInit) run() (*program, error) {
	var l labels
	err := inOrder(
		func() error {
			// A process that was cloned into its cgroup is past the transition for which these processors are.
			err := setAffinity(e.Process.InitialCPUs)
			if len(e.Cgroups) == 0 && errors.Is(err, unix.EINVAL) {
				return nil
			}
			return err
		},
		e.enterCgroups,
		e.changeRoot,
		func() error { return joinKeyring(e.Keyring, e.Process.SELinux) },
		e.raiseLimits,
		func() (err error) { l, err = e.Process.openLabels(); return err },
		e.stdio,
		func() error { return l.apply(&e.Process) },
		func() error { return setAffinity(e.Process.FinalCPUs) },
	)
	if err != nil {
		return nil, err
	}
	path, err := e.assume()
	if err != nil {
		return nil, err
	}
	unix.Umask(int(e.Process.Umask))
	return e.newProgram(path)
}

func (e *execInit) stdio() error {
	if !e.Terminal {
		return nil
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /: %w", err)
	}
	defer unix.Close(fd)
	dev, err := root{fd, "/"}.open("/dev", unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open a terminal, /dev: %w", err)
	}
	defer unix.Close(dev)
	return openConsole(e.ConsoleSize, dev, false)
}

// enterCgroups moves this thread into the app's version 1 cgroups, and allows it each CPU that its
// cgroups allow. The other threads end at the exec. When a thread moves itself, the kernel does
// not wait for a grace period, as it does when a whole process is moved.
func (c *config) enterCgroups() error {
	for _, fd := range c.Cgroups {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return fmt.Errorf("enter a cgroup: %w", err)
		}
	}
	if n := len(c.Cgroups); n > 0 { // they follow each other
		if err := unix.CloseRange(uint(c.Cgroups[0]), uint(c.Cgroups[n-1]), 0); err != nil {
			return fmt.Errorf("close the files of cgroups: %w", err)
		}
	}
	proc.UseAllCPUs()
	return nil
}

// raiseLimits raises limits while this process still has the right to. In a user namespace
// it has no such right. An exec sees the app's /proc, in which the file of the OOM score
// could be any other file. In both cases the supervisor raises the limits from outside.
func (c *config) raiseLimits() error {
	if !c.Exec || c.Process.OOMScoreAdj == nil {
		err := c.Process.raiseAll(0)
		if err == nil || !c.UserNamespace && !c.Exec {
			return err
		}
	}
	if err := send(Message{Word: WordLimits}); err != nil {
		return err
	}
	await(WordGo)
	return nil
}

// assume gives this process the limits, labels and identity of the program, enters its
// working directory and returns the program's path.
func (c *config) assume() (string, error) {
	p := &c.Process
	if p.NoHome {
		p.Env = append(p.Env, "HOME="+home(p.UID))
	}
	if err := inOrder(
		p.schedule,
		func() error { return setPersonality(c.Personality) },
		c.MemoryPolicy.set,
		func() error { return ownStdio(p.UID) },
		func() error { return noNewPrivileges(p.NoNewPrivileges) },
	); err != nil {
		return "", err
	}
	entered := p.enterCwd()
	if entered != nil && !errors.Is(entered, unix.EACCES) {
		return "", entered
	}
	if err := p.become(c.keepsAdmin(), c.UserNamespace); err != nil {
		return "", err
	}
	if entered != nil {
		if err := p.enterCwd(); err != nil {
			return "", err
		}
	}
	return p.lookPath()
}

func noNewPrivileges(on bool) error {
	if !on {
		return nil
	}
	return doing("set no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}
