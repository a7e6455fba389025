package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

func TestTheFirstSettingsThatExistAreReadOverTheDefaults(t *testing.T) {
	dir := t.TempDir()
	none, first, second := filepath.Join(dir, "none"), filepath.Join(dir, "first"), filepath.Join(dir, "second")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(first, `{"cpus": 2, "kernelSum": "abc"}`)
	write(second, `{"cpus": 3}`)
	want := defaults.placed(places())
	want.CPUs, want.KernelSum = 2, "abc"
	if got, err := readSettings(none, first, second); err != nil || got != want {
		t.Errorf("read %+v: %v", got, err)
	}
	if got, err := readSettings(none); err != nil || got != defaults.placed(places()) {
		t.Errorf("without a file: %+v: %v", got, err)
	}
	for wrong, why := range map[string]string{`{"kernelsum1": "abc"}`: `unknown field "kernelsum1"`, `{`: "unexpected EOF", `{"cpus": "2"}`: "cannot unmarshal"} {
		write(first, wrong)
		if _, err := readSettings(first); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, without %q", wrong, err, why)
		}
	}
	write(first, `{}`)
	if err := os.Chmod(first, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readSettings(first); err == nil || !strings.Contains(err.Error(), "only root may write it") {
		t.Errorf("a file that everyone may write: %v", err)
	}
}

func TestTheKernelIsThatOfTheFirstPlaceThatHasOne(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	expect := func(s settings, kernel, modules string) {
		t.Helper()
		if s = s.placed(dirs); s.Kernel != kernel || s.Modules != modules {
			t.Errorf("the machine has %s and %s, want %s and %s", s.Kernel, s.Modules, kernel, modules)
		}
	}
	first, second := dirs[0], dirs[1]
	expect(defaults, first+"/vmlinux", first+"/modules")
	for _, dir := range []string{second, first} {
		if err := os.WriteFile(filepath.Join(dir, "vmlinux"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		expect(defaults, dir+"/vmlinux", dir+"/modules")
	}
	expect(settings{Kernel: "/k", Modules: "/m"}, "/k", "/m")
	expect(settings{Kernel: "/k"}, "/k", first+"/modules")
}
