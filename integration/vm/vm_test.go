package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestModulesAreLoadedAfterWhatTheyNeed(t *testing.T) {
	const dependencies = "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n" +
		"kernel/fs/jbd2/jbd2.ko:\n" +
		"kernel/lib/crc16.ko:\n" +
		"kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_pci_modern_dev.ko kernel/drivers/virtio/virtio.ko\n"
	got, err := loadOrder(dependencies, []string{"virtio_pci", "jbd2", "ext4"})
	want := []string{
		"kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_pci_modern_dev.ko", "kernel/drivers/virtio/virtio_pci.ko",
		"kernel/fs/jbd2/jbd2.ko",
		"kernel/lib/crc16.ko", "kernel/fs/ext4/ext4.ko",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := loadOrder(dependencies, []string{"zfs"}); err == nil || !strings.Contains(err.Error(), "zfs") {
		t.Errorf("a module that is not there: %v", err)
	}
}

func TestAnArchiveIsOneThatBusyboxUnpacks(t *testing.T) {
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	archive := cpio{w: &b}
	archive.dir("bin")
	archive.file("bin/odd", 0o755, []byte("seven.."))
	archive.file("bin/none", 0o644, nil)
	if err := archive.end(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i")
	cmd.Dir, cmd.Stdin = dir, &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "bin/odd"))
	if err != nil || string(content) != "seven.." {
		t.Errorf("%q, %v", content, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/odd")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/none")); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestTheVerdictIsThatOfTheGuestsTests(t *testing.T) {
	const (
		passes = "\x01up 6.1\n\x01begin pod\n=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n\x01end pod 0\n"
		fails  = "\x01begin pod\n=== RUN   TestA\n--- FAIL: TestA (0.00s)\nFAIL\n\x01end pod 1\n"
		remain = "\x01begin pod\n\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16PASS\npod: left at the end\n\x01end pod 1\n"
		done   = "\x01done\n"
	)
	skips := func(n int) string {
		return "\x01begin skips\n" + strings.Repeat("\x16=== RUN   TestA\n\x16--- SKIP: TestA (0.00s)\n", n) + "\x16PASS\n\x01end skips 0\n"
	}
	for _, c := range []struct {
		name, said string
		passed     []string // packages
		failed     []string
		err        error // nil: any error, if no package has a result
	}{
		{"all pass", passes + done, []string{"guest/pod"}, nil, nil},
		{"one fails", passes + fails + done, []string{"guest/pod"}, []string{"guest/pod"}, errors.New("tests failed: pod ended with code 1")},
		{"all tests pass, and not the suite", remain + done, nil, []string{"guest/pod"}, errors.New("tests failed: pod ended with code 1")},
		{"the guest dies between", passes, []string{"guest/pod"}, nil, errors.New("the guest ended before its tests did")},
		{"the guest dies in a test", passes + "\x01begin x\n=== RUN   TestB\n", []string{"guest/pod"}, []string{"guest/x"}, errors.New("the guest ended before its tests did")},
		{"as many are skipped as is known", skips(1) + done, []string{"guest/skips"}, nil, nil},
		{"more are skipped than is known", skips(2) + done, nil, []string{"guest/skips"}, errors.New("tests failed: skips has skipped 2 tests, and not 1")},
		{"a line has no end", strings.Replace(passes, "PASS\n\x01end", "PASS\nlast words\x01end", 1) + done, []string{"guest/pod"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, log bytes.Buffer
			r := results{out: &out, log: &log, skips: map[string]int{"skips": 1}}
			err := r.read(t.Context(), strings.NewReader(c.said))
			if (err == nil) != (c.err == nil) || err != nil && err.Error() != c.err.Error() {
				t.Errorf("error: %v, want %v", err, c.err)
			}
			if passed := verdicts(t, out.Bytes(), "pass"); !slices.Equal(passed, c.passed) {
				t.Errorf("passed: %q, want %q", passed, c.passed)
			}
			if failed := verdicts(t, out.Bytes(), "fail"); !slices.Equal(failed, c.failed) {
				t.Errorf("failed: %q, want %q", failed, c.failed)
			}
		})
	}
}

func TestASelectionIsOfSuitesAndTheirTests(t *testing.T) {
	names := func(s selection) (all []string) {
		for _, t := range s.suites() {
			all = append(all, t.name)
		}
		return all
	}
	whole := names(selection{})
	// One makes two releases first, and the other compares with runc for minutes.
	long := []string{"integration/packages", "integration/hostile"}
	whole = slices.DeleteFunc(whole, func(name string) bool { return slices.Contains(long, name) })
	if short := names(selection{short: true}); !slices.Equal(short, whole) || !slices.Contains(whole, "pod/cgroup") {
		t.Errorf("the whole is %q, and its short form %q", whole, short)
	}
	for _, c := range []struct {
		selection
		want []testSuite
	}{
		{selection{suite: "pod", run: "TestUpdate"}, []testSuite{{name: "pod", run: "TestUpdate", short: "ResourcesThat|OOM|Watches"}}},
		{selection{suite: "integration/enclosure", args: "-x"}, []testSuite{{name: "integration/enclosure", run: ".", args: "-x"}}},
		{selection{suite: "stage1", short: true}, []testSuite{}},
		{selection{suite: "pod", short: true, args: "-x"}, []testSuite{{name: "pod", run: "ResourcesThat|OOM|Watches", short: "ResourcesThat|OOM|Watches", args: "-test.short -x"}}},
	} {
		if got := c.suites(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %+v, want %+v", c.selection, got, c.want)
		}
	}
	for _, s := range append(allSuites(), testSuite{name: "integration/enclosure"}) {
		if found, _ := filepath.Glob(filepath.Join("..", s.dir(), "*_test.go")); len(found) == 0 {
			t.Errorf("%s has no tests", s.dir())
		}
	}
}

// verdicts returns the packages with a result.
func verdicts(t *testing.T, stream []byte, result string) (packages []string) {
	t.Helper()
	for line := range bytes.Lines(stream) {
		var e struct{ Action, Package, Test string }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.Action == result && e.Test == "" {
			packages = append(packages, e.Package)
		}
	}
	return packages
}
