package main

import (
	"fmt"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// newRegistry returns a registry with the images that the suite pulls, except one that the
// suite names by its digest. The names of the images are constants in the suite. All images
// are made from the host's busybox.
func newRegistry(nc string) (*registry.Registry, error) {
	base, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(nc)
	if err != nil {
		return nil, err
	}
	busybox := append(base, reliedUpon(program)...)
	layers := [][]image.File{busybox}
	for i := range 3 {
		layers = append(layers, []image.File{{Name: fmt.Sprintf("layers/%d", i), Mode: 0o644, Content: []byte{'0' + byte(i)}}})
	}
	pause := [][]image.File{{{Name: "pause", Mode: 0o755, Content: program}}}

	r := registry.New()
	for _, img := range []image.Image{
		{Name: "ghcr.io/containerd/busybox:1.36", Layers: layers[:1]},
		{Name: "ghcr.io/containerd/volume-copy-up:2.2", Layers: layers},
		{Name: "ghcr.io/containerd/volume-ownership:2.1", Layers: layers[:2]},
		{Name: "registry.k8s.io/pause:3.6", Layers: pause},
		{Name: "registry.k8s.io/pause:3.10.2", Layers: pause},
		{Name: "registry.k8s.io/e2e-test-images/busybox:1.29-2", Layers: layers[:1]},
	} {
		img.Config = ocispec.ImageConfig{
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Cmd: []string{"sh"},
		}
		if err := r.Add(img, platforms...); err != nil {
			return nil, err
		}
	}
	windows := image.Image{Name: "ghcr.io/containerd/windows/nanoserver:1809", Layers: pause}
	return r, r.Add(windows, ocispec.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.17763.1"})
}

// platforms are the platforms of every image. The suite asks for three platforms at once in one
// test, and for more than one in each test that counts them.
var platforms = []ocispec.Platform{
	{OS: "linux", Architecture: "amd64"},
	{OS: "linux", Architecture: "arm64", Variant: "v8"},
	{OS: "linux", Architecture: "arm", Variant: "v7"},
	{OS: "linux", Architecture: "ppc64le"},
	{OS: "linux", Architecture: "s390x"},
}

// reliedUpon has the files that tests expect in an image in addition to a busybox: the users
// sys, www-data and backup, a bash, a setuid program, and an nc that SIGTERM ends.
func reliedUpon(nc []byte) []image.File {
	return []image.File{
		{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\nsys:x:3:3:sys:/dev:/bin/false\n" +
			"www-data:x:33:33:www-data:/var/www:/bin/false\nbackup:x:34:34:backup:/var/backups:/bin/false\n")},
		{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nsys:x:3:\nwww-data:x:33:\nbackup:x:34:\n")},
		{Name: "bin/bash", Mode: 0o755, Content: []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n")},
		{Name: "usr/bin/passwd", Mode: 0o4755, Content: []byte("#!/bin/sh\n")},
		{Name: "bin/nc", Mode: 0o755, Content: nc},
	}
}
