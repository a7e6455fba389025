package isolator

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seccomp"
)

// A misspelled name in a set would be ignored, like a call of another architecture.
func TestEveryCallOfASetIsKnownSomewhere(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64, which knows the calls of i386 and of x32, too")
	}
	// These calls exist only on kernels or architectures for which no profile here is
	// compiled.
	foreign := strings.Fields(`arm_fadvise64_64 arm_sync_file_range fstatat64 sendfile64 afs_syscall bdflush break breakpoint cacheflush create_module ftime gtty idle lock mpx prof profil
		pciconfig_iobase pciconfig_read pciconfig_write riscv_flush_icache riscv_hwprobe s390_pci_mmio_read s390_pci_mmio_write set_tls
		stty swapcontext sync_file_range2 tuxcall ulimit uretprobe security umount`)
	for _, set := range strings.Fields(`@rkt/default-whitelist @rkt/default-blacklist @docker/default-whitelist @docker/default-blacklist @systemd/clock
		@systemd/default-whitelist @systemd/mount @systemd/network-io @systemd/obsolete @systemd/privileged @systemd/process @systemd/raw-io`) {
		names := callsOf(set)
		if len(names) == 0 {
			t.Errorf("%s is empty", set)
		}
		for _, name := range names {
			if slices.Contains(foreign, name) {
				continue
			}
			if !known(t, name) {
				t.Errorf("%s: %s is no system call", set, name)
			}
		}
	}
}

// known reports whether a filter of one call differs from a filter of a call that does not exist.
func known(t *testing.T, name string) bool {
	t.Helper()
	compiled := func(name string) string {
		prog, _, err := seccomp.Compile(&specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32, specs.ArchAARCH64, specs.ArchARM},
			Syscalls: []specs.LinuxSyscall{{Names: []string{name}, Action: specs.ActErrno}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(prog)
	}
	return compiled(name) != compiled("no_such_call")
}
