package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// program is the program that makes containers.
const program = "systemd-nspawn"

// execNspawn executes systemd-nspawn. It sets LISTEN_PID first, because systemd-nspawn
// passes on descriptors only if that variable has its pid. It returns only if it fails.
func execNspawn(args []string) int {
	path, err := exec.LookPath(program)
	if err != nil {
		fmt.Fprintf(os.Stderr, "there is no %s in %s: install systemd-container\n", program, os.Getenv("PATH"))
		return 127
	}
	env := append(os.Environ(), "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	fmt.Fprintf(os.Stderr, "%s: %v\n", path, unix.Exec(path, append([]string{program}, args...), env))
	return 126
}
