package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// LookPath returns the path of a program: name if it has a slash, else the first file of that
// name in dirs for which check returns nil. Its errors have the texts of os/exec, which
// clients look for. They unwrap to fs.ErrPermission if check has returned that for a file.
func LookPath(name string, dirs []string, check func(path string) error) (string, error) {
	if strings.Contains(name, "/") {
		if err := check(name); err != nil {
			return "", fmt.Errorf("exec: %q: %w", name, err)
		}
		return name, nil
	}
	var denied error
	for _, dir := range dirs {
		path := dir + "/" + name
		err := check(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", fmt.Errorf("exec: %q: %w", name, denied)
	}
	return "", NotInPath(name)
}

// NotInPath returns the error for a program that is in no directory.
func NotInPath(name string) error {
	return fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}
