package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// probeFeatures serves features/probe, and returns the exit code. What the stage1 honours does not depend
// on the host, but whether there can be machines does: if there cannot, the error says why, and
// `rktctl doctor` shows it.
func probeFeatures() int {
	errorFile := proc.Inherited(abi.EnvErrorFD)
	if errorFile == nil {
		errorFile = os.Stderr
	}
	image, err := os.Executable()
	if err == nil {
		err = writeFeatures(os.Stdout, filepath.Dir(image), nodeSettings)
	}
	if err != nil {
		fmt.Fprintln(errorFile, err)
		return 1
	}
	return 0
}

// writeFeatures writes the features document of an image, and the files that decide whether it has machines.
func writeFeatures(w io.Writer, image, node string) error {
	files := []string{filepath.Join(image, imageSettings), node}
	s, err := readSettings(files...)
	if err != nil {
		return err
	}
	if _, err := s.machineType(nil); err != nil {
		return err
	}
	p := machine.Probe{Kernel: s.Kernel, Modules: s.Modules, KernelSum: s.KernelSum, ModulesSum: s.ModulesSum, Memo: memo}
	dir, err := os.Getwd() // is empty, and removed after the call
	if err != nil {
		return err
	}
	if err := p.Check(machine.Accel(s.Accel), dir); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(image, "features.json"))
	if err != nil {
		return err
	}
	var features map[string]any
	if err := json.Unmarshal(text, &features); err != nil {
		return fmt.Errorf("features.json: %w", err)
	}
	features["files"] = append(files, p.Needs()...)
	return json.NewEncoder(w).Encode(features)
}
