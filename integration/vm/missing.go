package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// missing returns an error if this machine cannot make and run the guest.
func (a *architecture) missing() error {
	if a.name != runtime.GOARCH && runtime.GOARCH != "amd64" {
		return fmt.Errorf("a machine of %s makes and runs guests of that architecture only, not of %s", runtime.GOARCH, a.name)
	}
	if os.Getuid() != 0 {
		return errors.New("only root can make the guest's file system")
	}
	var programs []string
	for program, of := range map[string]string{
		a.qemu: a.qemuPackage, "debootstrap": "debootstrap", "/sbin/mkfs.ext4": "e2fsprogs", "/sbin/depmod": "kmod", "apt-get": "apt", "dpkg": "dpkg",
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
