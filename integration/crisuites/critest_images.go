package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Registries and repositories of critest's images.
const (
	tests   = "registry.k8s.io/e2e-test-images/"
	staging = "gcr.io/k8s-staging-cri-tools/"
)

// critestImages returns the images that critest pulls, except the one that it names by its
// digest.
func critestImages() ([]image.Image, error) {
	busybox, err := critestBusybox()
	if err != nil {
		return nil, err
	}
	nginx, err := program("nginx", "usr/sbin/nginx", 0o755)
	if err != nil {
		return nil, err
	}
	escalating, err := program("nonewprivs", "nnp", 0o4755)
	if err != nil {
		return nil, err
	}
	pause, err := program("pause", "pause", 0o755)
	if err != nil {
		return nil, err
	}
	command := func(args ...string) ocispec.ImageConfig { return ocispec.ImageConfig{Cmd: args} }
	user := func(u string) ocispec.ImageConfig { return ocispec.ImageConfig{Cmd: []string{"sh"}, User: u} }
	own := func(name string, config ocispec.ImageConfig, further ...image.File) image.Image {
		layers := [][]image.File{busybox}
		if len(further) > 0 {
			layers = append(layers, further)
		}
		return image.Image{Name: name, Config: config, Layers: layers}
	}
	all := []image.Image{
		own(tests+"busybox:1.29-2", command("sh")),
		own(tests+"nginx:1.14-2", command("/usr/sbin/nginx", "-port", "80", master), nginx),
		own(tests+"httpd:2.4.39-4", command("/usr/sbin/nginx", "-port", "80", master), nginx),
		own(staging+"hostnet-nginx-"+runtime.GOARCH+":latest", command("/usr/sbin/nginx", "-port", "12003", master), nginx),
		own(tests+"nonewprivs:1.3", command("/nnp"), escalating),
		own(staging+"test-image-user-uid:latest", user("1002")),
		own(staging+"test-image-user-username:latest", user("www-data")),
		own(staging+"test-image-user-uid-group:latest", user("1003:users")),
		own(staging+"test-image-user-username-group:latest", user("www-data:100")),
		own(staging+"test-image-predefined-group:latest", user("1000"),
			image.File{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/home:/bin/sh\n")},
			image.File{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")}),
	}
	// All of these images have different contents, except those of test-image-tags.
	for _, name := range []string{"test-image-latest:latest", "test-image-tag:test", "test-image-tag:all",
		"test-image-1:latest", "test-image-2:latest", "test-image-3:latest"} {
		all = append(all, own(staging+name, command("sh"), image.File{Name: "name", Mode: 0o644, Content: []byte(name)}))
	}
	for i := 1; i <= 3; i++ {
		all = append(all, own(fmt.Sprintf("%stest-image-tags:%d", staging, i), command("sh"), image.File{Name: "name", Mode: 0o644, Content: []byte("tags")}))
	}
	for _, name := range []string{node.PauseImage, "registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"} {
		version := image.File{Name: "version", Mode: 0o644, Content: []byte(name[strings.LastIndexByte(name, ':'):])}
		img := image.Image{Name: name, Layers: [][]image.File{{pause, version}}}
		img.Config = ocispec.ImageConfig{Entrypoint: []string{"/pause"}, User: "65535:65535"}
		all = append(all, img)
	}
	return all, nil
}

// master is the command line of an nginx's first process.
const master = "master process"

// critestBusybox has the files that the suite expects in a busybox: some users, applets that
// Debian's does not have, and an ls in a file of its own, whose path can be masked.
func critestBusybox() ([]image.File, error) {
	files, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	applets, err := program("applets", "bin/applets", 0o755)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(files, func(f image.File) bool { return f.Name == "bin/busybox" })
	return append(files, applets,
		image.File{Name: "bin/ls", Mode: 0o755, Content: files[i].Content},
		image.File{Name: "bin/pgrep", Link: "applets"},
		image.File{Name: "bin/ipcs", Link: "applets"},
		image.File{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n" +
			"nobody:x:65534:65534:nobody:/home:/bin/false\n")},
		image.File{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nwww-data:x:33:\nusers:x:100:\nnobody:x:65534:\n")},
	), nil
}

// program returns a program of containerd's directory as a file of an image.
func program(name, path string, mode int64) (image.File, error) {
	content, err := os.ReadFile(filepath.Join(programsDir, name))
	return image.File{Name: path, Mode: mode, Content: content}, err
}
