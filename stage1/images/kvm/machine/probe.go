package machine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Probe finds out whether KVM runs guests here. That /dev/kvm can be opened proves nothing: there are
// hosts whose KVM cannot execute a kernel's instructions. So a probe boots the kernel, with a first
// process that turns the machine off.
type Probe struct {
	// As in Config. The rest of that is the pod's.
	Kernel, Modules       string
	KernelSum, ModulesSum string
	Cmdline, Dir          string
	Children              *proc.Children

	// Memo is a file that remembers what was found out, as long as the host is not booted and the
	// files of QEMU and the kernel are the same. Its directory must be root's.
	Memo string
}

// probeTime is how long the guest of a probe may run. It takes less than a second with KVM. hungFor is how long it is
// remembered that it took longer: that may be the load of the host.
const (
	probeTime = 30 * time.Second
	hungFor   = 10 * time.Minute
)

var errProbeHangs = fmt.Errorf("a guest has not turned itself off after %s", probeTime)

// finding is the content of the memo.
type finding struct {
	Boot    string `json:"boot"`
	QEMU    string `json:"qemu"`
	Kernel  string `json:"kernel"`
	Failure string `json:"failure"` // "": KVM runs guests
	// Until is when the failure is tried again, or zero.
	Until time.Time `json:"until,omitzero"`
}

// Auto stands for KVM if it runs guests, and otherwise for TCG.
const Auto Accel = "auto"

// Choose returns KVM or TCG for the word of a configuration: KVM, TCG or Auto. why is the reason if
// Auto stands for TCG. KVM is an error if it runs no guests.
func (p Probe) Choose(ctx context.Context, word Accel) (accel Accel, why, err error) {
	switch word {
	case TCG:
		return TCG, nil, nil
	case KVM:
		return KVM, nil, p.KVM(ctx)
	case Auto:
		if why = p.KVM(ctx); why == nil {
			return KVM, nil, nil
		}
		return TCG, why, context.Cause(ctx)
	}
	return "", nil, fmt.Errorf("there is no accelerator %q: it is kvm, tcg or auto", word)
}

// KVM returns nil if KVM runs guests, otherwise why it does not.
func (p Probe) KVM(ctx context.Context) error {
	if _, err := os.Stat(kvmDevice); err != nil {
		return fmt.Errorf("this host has no KVM: %w", err)
	}
	failure, err := p.remembered(ctx, func(ctx context.Context) error { return p.try(ctx, KVM) })
	if err != nil {
		return fmt.Errorf("find out whether KVM runs guests: %w", err)
	}
	if failure != "" {
		return errors.New("KVM runs no guests here: " + failure)
	}
	return nil
}

// remembered returns the failure of the memo, or of a call of try. It remembers success, and what QEMU and its guest have shown of KVM.
// It does not remember other errors, such as a full disk or a killed QEMU, which say nothing of KVM. Concurrent probes wait for one.
func (p Probe) remembered(ctx context.Context, try func(context.Context) error) (string, error) {
	now, err := p.now()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(p.Memo), 0o700); err != nil {
		return "", err
	}
	memo, err := proc.OpenFile(p.Memo, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer memo.Close()
	if err := proc.FlockUntil(ctx, memo, unix.LOCK_EX); err != nil {
		return "", err
	}
	text, err := io.ReadAll(memo)
	if err != nil {
		return "", err
	}
	var known finding
	// A memo that was written by half is no JSON, and is written again.
	if json.Unmarshal(text, &known) == nil && known.Boot == now.Boot && known.QEMU == now.QEMU && known.Kernel == now.Kernel &&
		(known.Until.IsZero() || time.Now().Before(known.Until)) {
		return known.Failure, nil
	}
	if err := try(ctx); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		var guest guestError
		switch {
		case errors.Is(err, errProbeHangs):
			now.Until = time.Now().Add(hungFor)
		case !errors.As(err, &guest):
			return "", err
		}
		now.Failure = err.Error()
	}
	if text, err = json.Marshal(now); err != nil {
		return "", err
	}
	if err := memo.Truncate(0); err != nil {
		return "", err
	}
	_, err = memo.WriteAt(text, 0)
	return now.Failure, err
}

// now returns the finding of a probe that succeeds now.
func (p Probe) now() (f finding, err error) {
	if f.Boot, err = proc.BootID(); err != nil {
		return f, err
	}
	if f.QEMU, err = identity(qemu); err != nil {
		return f, err
	}
	f.Kernel, err = identity(p.Kernel)
	return f, err
}

// identity returns a text that changes when a file is replaced or written to.
func identity(path string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprintf("%s %d:%d %d bytes %d.%09d", path, s.Dev, s.Ino, s.Size, s.Ctim.Sec, s.Ctim.Nsec), nil
}

// try boots the guest.
func (p Probe) try(ctx context.Context, accel Accel) error {
	m, end, err := p.boot(ctx, accel)
	if err != nil {
		return err
	}
	defer end()
	timeout := time.NewTimer(probeTime)
	defer timeout.Stop()
	select {
	case <-m.Done():
		return m.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("%w%s", errProbeHangs, proc.Busy())
	}
}

// boot returns the machine of a probe. end ends it. It is in no cgroup of a pod, whose limits would decide for all later pods.
func (p Probe) boot(ctx context.Context, accel Accel) (m Machine, end func(), err error) {
	dir, err := os.MkdirTemp(p.Dir, "probe-")
	if err != nil {
		return nil, nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	end = func() {
		if m != nil {
			_ = m.Stop(context.Background())
		}
		_ = unix.Close(pair[0])
		_ = os.RemoveAll(dir)
	}
	c := Config{
		Kernel: p.Kernel, Modules: p.Modules, KernelSum: p.KernelSum, ModulesSum: p.ModulesSum, Cmdline: p.Cmdline,
		Init: filepath.Join(dir, "init"), Accel: accel, CPUs: 1, Memory: 128 * mebibyte,
		Channel: os.NewFile(uintptr(pair[1]), "channel"), Dir: dir, Children: p.Children,
	}
	if c.Console, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		err = os.WriteFile(c.Init, poweroff(), 0o755)
	}
	if err != nil {
		proc.CloseFiles(c.Channel, c.Console)
	} else {
		m, err = Boot(ctx, c)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return m, end, nil
}

// poweroff returns the first process of the guest: a static program that turns the machine off, by one
// call of reboot(2).
func poweroff() []byte {
	const base, headers = 0x400000, 64 + 56
	code := []byte{
		0xb8, 169, 0, 0, 0, // mov eax, __NR_reboot
		0xbf, 0xad, 0xde, 0xe1, 0xfe, // mov edi, LINUX_REBOOT_MAGIC1
		0xbe, 0x69, 0x19, 0x12, 0x28, // mov esi, LINUX_REBOOT_MAGIC2
		0xba, 0xdc, 0xfe, 0x21, 0x43, // mov edx, LINUX_REBOOT_CMD_POWER_OFF
		0x45, 0x31, 0xd2, // xor r10d, r10d
		0x0f, 0x05, // syscall
		0xeb, 0xfe, // jmp to itself
	}
	var program bytes.Buffer
	program.WriteString("\x7fELF\x02\x01\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	size := uint64(headers + len(code))
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // an executable for x86-64
		uint64(base + headers), uint64(64), uint64(0), uint32(0), // entry, program headers, no sections, flags
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0), // sizes and numbers of headers
		uint32(1), uint32(5), uint64(0), // a segment to load, readable and executable, from the file's begin
		uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&program, binary.LittleEndian, field) // to memory
	}
	program.Write(code)
	return program.Bytes()
}
