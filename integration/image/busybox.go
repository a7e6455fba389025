package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Names of the images that Test makes.
const (
	BusyboxName = "integration.test/busybox:latest"
	LayersName  = "integration.test/layers:latest"
)

// Layers is the number of layers of the image LayersName: more than overlayfs takes in one page
// of mount options.
const Layers = 60

// Test returns the images of the suite: busybox with the test program at /bin/testprog, and the
// same image with many small layers on top.
func Test(testprog string) ([]Image, error) {
	base, err := Busybox()
	if err != nil {
		return nil, err
	}
	prog, err := os.ReadFile(testprog)
	if err != nil {
		return nil, err
	}
	config := ocispec.ImageConfig{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Cmd: []string{"/bin/sh"},
	}
	layers := [][]File{base, {
		{Name: "bin/testprog", Mode: 0o755, Content: prog},
		{Name: "etc/not-executable", Mode: 0o644, Content: []byte("#!/bin/sh\n")},
	}}
	many := append([][]File(nil), layers...)
	for i := len(many); i < Layers; i++ {
		many = append(many, []File{{Name: fmt.Sprintf("layers/%d", i), Mode: 0o644, Content: []byte(fmt.Sprintln(i))}})
	}
	return []Image{
		{Name: BusyboxName, Config: config, Layers: layers},
		{Name: LayersName, Config: config, Layers: many},
	}, nil
}

// Busybox returns the files of a root file system with the host's busybox, which must be
// static. A later file of a layer replaces an earlier one of the same name.
func Busybox() ([]File, error) {
	const program = "/bin/busybox"
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("the images are made of a static busybox (Debian: busybox-static): %w", err)
	}
	applets, err := exec.Command(program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", program, err)
	}
	files := []File{
		{Name: "bin/busybox", Mode: 0o755, Content: content},
		{Name: "tmp/", Mode: 0o1777},
		{Name: "root/", Mode: 0o700},
		{Name: "run/", Mode: 0o755},
		{Name: "proc/", Mode: 0o755},
		{Name: "sys/", Mode: 0o755},
		{Name: "dev/", Mode: 0o755},
		{Name: "home/alice/", Mode: 0o755, UID: 1000},
		{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nalice:x:1000:1000::/home/alice:/bin/sh\n")},
		{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\ntty:x:5:\nwww-data:x:33:\nstaff:x:50:alice\nalice:x:1000:\n")},
		{Name: "etc/hosts", Mode: 0o644, Content: []byte("127.0.0.1 localhost\n")},
	}
	for _, a := range strings.Fields(string(bytes.TrimSpace(applets))) {
		if a != "busybox" {
			files = append(files, File{Name: "bin/" + a, Link: "busybox"})
		}
	}
	return files, nil
}
