package hostile

import (
	"fmt"
	"os"
)

func pointer[T any](v T) *T { return &v }

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

func write(l *lab, path, text string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func mkdir(l *lab, path string) {
	l.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		l.t.Fatal(err)
	}
}

func link(l *lab, target, path string) {
	l.t.Helper()
	if err := os.Symlink(target, path); err != nil {
		l.t.Fatal(err)
	}
}
