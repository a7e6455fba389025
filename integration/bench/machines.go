package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machines is what the rig has for the stage1 kvm, and for the machines that it is compared with.
type machines struct {
	config string     // file with the configuration of the shim
	bare   bareConfig // of a bare boot, except its directories
	host   string     // program that boots it
	// versions are those of QEMU and of the guest's kernel.
	versions string
}

// bareConfig is the configuration of internal/bareboot: a machine.Config.
type bareConfig struct {
	Kernel, Modules, Init, Cmdline, Accel, Dir string
	CPUs, MaxCPUs                              int
	Memory, MaxMemory                          int64
	Shares                                     []bareShare
}

type bareShare struct{ Tag, Dir string }

// Sizes of machines: the defaults of the stage1.
const (
	machineCPUs   = 1
	machineMemory = 1 << 30
	memoryUnit    = 2 << 20
)

// savedStage1 is the name of a stage1 kvm that saves machines and restores them.
const savedStage1 = "kvm-saved"

// newMachines configures the stage1 kvm in the rig's copy of bin, and makes the files of bare boots.
func newMachines(ctx context.Context, r *rig, accel string) (*machines, error) {
	image, kernel := filepath.Join(r.shims(), "stage1/kvm"), filepath.Join(r.shims(), "kvm")
	for _, file := range []string{filepath.Join(image, "manifest"), filepath.Join(kernel, "vmlinux")} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("run make kvm first: %w", err)
		}
	}
	m := &machines{config: filepath.Join(r.dir, "kvm.toml"), host: filepath.Join(r.dir, "bareboot")}
	saving := filepath.Join(r.dir, savedStage1)
	config := fmt.Appendf(nil, "[stage1.%s]\npath = %q\n[stage1.%s]\npath = %q\npods_may_ask = true\n", virtual, image, savedStage1, saving)
	if err := os.WriteFile(m.config, config, 0o600); err != nil {
		return nil, err
	}
	if err := os.CopyFS(saving, os.DirFS(image)); err != nil {
		return nil, err
	}
	settings := map[string]any{
		"kernel": filepath.Join(kernel, "vmlinux"), "modules": filepath.Join(kernel, "modules"), "accel": accel,
		"cpus": machineCPUs, "memory": machineMemory,
	}
	if err := writeSettings(image, settings); err != nil {
		return nil, err
	}
	settings["savedMachines"] = filepath.Join(r.dir, "saved-machines")
	if err := writeSettings(saving, settings); err != nil {
		return nil, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	total := int64(info.Totalram) * int64(info.Unit)
	m.bare = bareConfig{
		Kernel: filepath.Join(kernel, "vmlinux"), Modules: filepath.Join(r.dir, "bare-modules"), Init: filepath.Join(r.dir, "bare-init"),
		Cmdline: "oops=panic", Accel: accel,
		CPUs: machineCPUs, Memory: machineMemory, MaxCPUs: max(machineCPUs, runtime.NumCPU()),
		MaxMemory: machineMemory + max(0, total-machineMemory)/memoryUnit*memoryUnit,
	}
	for path, program := range map[string]string{m.host: "./internal/bareboot", m.bare.Init: "./internal/bareboot/guest"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, program)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", program, err, out)
		}
	}
	var err error
	if m.versions, err = machineVersions(ctx, m.bare.Kernel); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, m.host, "files", m.bare.Modules, filepath.Join(kernel, "modules"), filepath.Join(image, "rootfs/agent")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return m, nil
}

func writeSettings(image string, settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(image, "rootfs/kvm.json"), text, 0o644)
}

// machineVersions returns the versions of QEMU and of a vmlinux.
func machineVersions(ctx context.Context, vmlinux string) (string, error) {
	text, err := os.ReadFile(vmlinux)
	if err != nil {
		return "", err
	}
	_, rest, ok := bytes.Cut(text, []byte("Linux version "))
	if !ok {
		return "", fmt.Errorf("%s has no version", vmlinux)
	}
	release, _, _ := bytes.Cut(rest[:min(len(rest), 200)], []byte(" "))
	return fmt.Sprintf("QEMU %s, guest Linux %s", versionOf(ctx, "qemu-system-x86_64", "--version"), release), nil
}

// bareMachine is a machine that bareboot has booted.
type bareMachine struct {
	dir  string
	cmd  *exec.Cmd
	end  io.Closer // ends it
	said bytes.Buffer
	qemu int // pid
}

// bootBare returns when the first process of a machine has said that it is up. The machine ends with ctx.
func (r *rig) bootBare(ctx context.Context) (_ *bareMachine, err error) {
	m := &bareMachine{}
	if m.dir, err = os.MkdirTemp(r.dir, "bare-"); err != nil {
		return nil, err
	}
	c := r.machines.bare
	c.Dir = m.dir
	for _, tag := range []string{"roots", "pod"} {
		s := bareShare{Tag: tag, Dir: filepath.Join(m.dir, "share-"+tag)}
		if err := os.Mkdir(s.Dir, 0o700); err != nil {
			return nil, err
		}
		c.Shares = append(c.Shares, s)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	// The shell waits until it is in the meter's cgroups, because what was started before is not counted.
	m.cmd = exec.CommandContext(ctx, "sh", "-c", `read -r _ && exec "$@"`, "sh", r.machines.host, "boot", string(text))
	m.cmd.Stderr = &m.said
	m.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // without the terminal's interrupt
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.end = stdin
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	err = r.meter.take(m.cmd.Process.Pid)
	if err == nil {
		_, err = io.WriteString(stdin, "\n")
	}
	if err == nil {
		if _, e := fmt.Fscanln(out, &m.qemu); e != nil {
			err = fmt.Errorf("the machine is not up: %w", e)
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// close ends the machine.
func (m *bareMachine) close() error {
	err := m.end.Close()
	if e := m.cmd.Wait(); e != nil {
		err = errors.Join(err, fmt.Errorf("bareboot: %w: %s", e, &m.said))
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// sameArguments returns an error unless two machines have the same command line of QEMU.
func sameArguments(a, b int) error {
	var lines [2]string
	for i, pid := range []int{a, b} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return err
		}
		lines[i] = strings.ReplaceAll(string(text), "\x00", " ")
	}
	if lines[0] != lines[1] {
		return fmt.Errorf("a pod's QEMU has other arguments than that of a bare boot:\n%s\n%s", lines[0], lines[1])
	}
	return nil
}
