// Command bareboot boots a machine whose first process does nothing but say that it is up. It is
// what `make bench-kvm` compares a pod of the stage1 kvm with.
//
//	bareboot boot CONFIG
//
// CONFIG is a machine.Config in JSON. The command prints the pid of QEMU when the guest has said
// that it is up, and ends the machine when its standard input ends.
//
//	bareboot files OUT MODULES AGENT
//
// writes the files of a pod's initramfs, the archive of modules and the agent, to an archive: Modules of
// CONFIG. A bare boot has these files and its own first process.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine/cpio"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "boot":
		err = boot(os.Args[2])
	case len(os.Args) == 5 && os.Args[1] == "files":
		err = files(os.Args[2], os.Args[3], os.Args[4])
	default:
		err = errors.New("usage: bareboot boot CONFIG | bareboot files OUT MODULES AGENT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bareboot:", err)
		os.Exit(1)
	}
}

func files(out, modules, agent string) error {
	archive, err := os.ReadFile(modules)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(agent)
	if err != nil {
		return err
	}
	to := bytes.NewBuffer(archive)
	w := cpio.NewWriter(to)
	w.File("agent", 0o755, int64(len(program)), bytes.NewReader(program))
	if err := w.End(); err != nil {
		return err
	}
	return os.WriteFile(out, to.Bytes(), 0o644)
}

func boot(config string) error {
	var c machine.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	port := os.NewFile(uintptr(pair[0]), "the channel")
	defer port.Close()
	console, said, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(os.Stderr, console) }()
	c.Channel, c.Console, c.Children = os.NewFile(uintptr(pair[1]), "the channel"), said, proc.NewChildren()
	m, err := machine.Boot(context.Background(), c)
	if err != nil {
		return err
	}
	defer func() { _ = m.Stop(context.Background()) }()
	// The channel of a machine that has ended ends.
	if _, err := bufio.NewReader(port).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the guest: %w", err)
	}
	fmt.Println(m.PID())
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-m.Done():
		return errors.Join(errors.New("the machine has ended"), m.Err())
	}
}
