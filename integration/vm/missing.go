package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

const qemu = "qemu-system-x86_64"

// missing returns an error if this machine cannot make and run the guest.
func missing() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the guest runs programs of this machine's, and is made for amd64: this is %s", runtime.GOARCH)
	}
	if os.Getuid() != 0 {
		return errors.New("only root can make the guest's file system")
	}
	var programs []string
	for program, of := range map[string]string{
		qemu: "qemu-system-x86", "debootstrap": "debootstrap", "/sbin/mkfs.ext4": "e2fsprogs", "apt-get": "apt", "dpkg": "dpkg",
	} {
		if _, err := exec.LookPath(program); err != nil {
			programs = append(programs, program+" (of Debian's package "+of+")")
		}
	}
	if len(programs) > 0 {
		return errors.New("the guest is made by Debian's tools and runs in QEMU, of which are missing: " + strings.Join(programs, ", "))
	}
	return nil
}
