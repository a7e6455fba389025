package container

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// parseSysctl translates the spec's keys into paths below /proc/sys, in the order of their
// names. A key that does not belong to a namespace of the app is an error, because it would
// change the host.
func parseSysctl(spec *specs.Spec, ns namespaces) ([]sysctl, error) {
	var values []sysctl
	for _, key := range slices.Sorted(maps.Keys(spec.Linux.Sysctl)) {
		p := sysctlPath(key)
		if err := checkSysctl(p, spec.Hostname, ns); err != nil {
			return nil, fmt.Errorf("linux.sysctl: %q %w", key, err)
		}
		values = append(values, sysctl{p, spec.Linux.Sysctl[key]})
	}
	return values, nil
}

// sysctlPath follows sysctl(8): the first "." or "/" in a key decides which one separates.
// The other one is an ordinary character ("net/ipv4/conf/eth0.1/forwarding").
func sysctlPath(key string) string {
	i := strings.IndexAny(key, "./")
	if i < 0 || key[i] == '/' {
		return key
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(key)
}

func checkSysctl(p, hostname string, ns namespaces) error {
	area, _, _ := strings.Cut(p, "/")
	if slices.Contains(strings.Split(p, "/"), "..") {
		return fmt.Errorf("is not below /proc/sys")
	}
	ipc := []string{
		"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem",
		"kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
	}
	switch {
	case area == "net":
		if !ns.private(specs.NetworkNamespace) {
			return fmt.Errorf("is not allowed in the host's network namespace")
		}
	case slices.Contains(ipc, p), strings.HasPrefix(p, "fs/mqueue/"):
		if !ns.private(specs.IPCNamespace) {
			return fmt.Errorf("is not allowed in the host's IPC namespace")
		}
	case area == "user":
		if !ns.private(specs.UserNamespace) {
			return fmt.Errorf("is not allowed in the host's user namespace")
		}
	case p == "kernel/domainname", p == "kernel/hostname":
		if !ns.private(specs.UTSNamespace) {
			return fmt.Errorf("is not allowed in the host's UTS namespace")
		}
		if p == "kernel/hostname" && hostname != "" {
			return fmt.Errorf("conflicts with the field hostname")
		}
	default:
		return fmt.Errorf("is not in a namespace of the app's")
	}
	return nil
}

// writeSysctl sets the app's sysctls through the host's /proc, before the app's root
// becomes "/", because there no mount of the app can hide the files. The namespace that a
// file changes is that of the writing process.
func writeSysctl(values []sysctl) error {
	if len(values) == 0 {
		return nil
	}
	dir, err := unix.Open("/proc/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc/sys: %w", err)
	}
	defer unix.Close(dir)
	for _, s := range values {
		if err := writeBeneath(dir, s.Path, s.Value); err != nil {
			return fmt.Errorf("write sysctl %s = %q: %w", strings.ReplaceAll(s.Path, "/", "."), s.Value, err)
		}
	}
	return nil
}

func writeBeneath(dir int, p, value string) error {
	fd, err := unix.Openat2(dir, p, &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}
