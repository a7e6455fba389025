package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReadOnceForItsSum(t *testing.T) {
	dir := t.TempDir()
	path, memos := filepath.Join(dir, "vmlinux"), filepath.Join(dir, "run", "sums")
	kernel := strings.Repeat("0", 64)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := verify(path, kernel, memos); err == nil || !strings.Contains(err.Error(), empty+", and should have "+kernel) {
		t.Errorf("another file: %v", err)
	}
	if err := verify(path, empty, memos); err != nil {
		t.Error(err)
	}
	memo := filepath.Join(memos, "vmlinux")
	text, err := os.ReadFile(memo)
	if err != nil {
		t.Fatal(err)
	}
	// What the memo says is believed.
	if err := os.WriteFile(memo, []byte(strings.Replace(string(text), empty, kernel, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(path, kernel, memos); err != nil {
		t.Errorf("the file was read again: %v", err)
	}
	// The memo says nothing of a file that has changed since.
	if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, sum := range []string{kernel, empty} {
		if err := verify(path, sum, memos); err == nil {
			t.Error("a changed file has its old sum")
		}
	}
	if err := verify(path, "", memos); err != nil {
		t.Errorf("a file without a sum: %v", err)
	}
	if err := verify(filepath.Join(dir, "none"), empty, memos); err == nil {
		t.Error("a file that is not there has a sum")
	}
}
