// Package machines configures the shim for suites whose pods are machines of the stage1 kvm. The
// machines are emulated, because not every host has a KVM that runs guests.
package machines

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Runtime is the type of the runtime whose pods are machines.
const Runtime = "io.containerd.rkt-kvm.v1"

// Only reports whether a suite runs with machines and with nothing else: each of them takes seconds to
// boot.
func Only() bool { return os.Getenv("RKT_TEST_RUNTIMES") == "kvm" }

// File is the name of the configuration in its directory.
const File = "kvm.toml"

// Saved is the directory of saved machines of a configuration in dir.
func Saved(dir string) string { return filepath.Join(dir, "saved-machines") }

// Configure makes a stage1 kvm that emulates machines, and returns the path of a configuration that
// has it, for RKT_CONFIG. bin is a directory that `make build` and `make kvm` have filled; its kernel
// is booted, and only with its sums. The image and the configuration, File, are made in dir. further
// lines stand before the stage1's. With RKT_TEST_SAVED machines are saved in Saved.
func Configure(bin, dir string, further ...string) (config string, err error) {
	kernel := filepath.Join(bin, "kvm")
	sums, err := sumsOf(filepath.Join(kernel, "SHA256SUMS"))
	if err != nil {
		return "", errors.Join(errors.New("machines need the files of `make kvm`"), err)
	}
	image := filepath.Join(dir, "kvm-image")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.CopyFS(image, os.DirFS(filepath.Join(bin, "stage1/kvm"))); err != nil {
		return "", err
	}
	settings := map[string]any{
		"kernel": filepath.Join(kernel, "vmlinux"), "kernelSum": sums["vmlinux"],
		"modules": filepath.Join(kernel, "modules"), "modulesSum": sums["modules"],
		"accel": "tcg", "maxCPUs": 3,
	}
	if os.Getenv("RKT_TEST_SAVED") != "" {
		settings["savedMachines"] = Saved(dir)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(image, "rootfs/kvm.json"), text, 0o644); err != nil {
		return "", err
	}
	lines := strings.Join(further, "\n") + fmt.Sprintf("\n[stage1.kvm]\npath = %q\n", image)
	config = filepath.Join(dir, File)
	return config, os.WriteFile(config, []byte(lines), 0o600)
}

// sumsOf reads a file that sha256sum could check.
func sumsOf(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	return sums, nil
}
