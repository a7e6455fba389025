package main

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

const (
	homepage    = "https://github.com/rkt/containerd-shim-rkt-v1"
	maintainer  = "The containerd-shim-rkt-v1 maintainers <maintainers@rkt.invalid>"
	description = `containerd runtime that runs containers in rkt stage1 pods
containerd-shim-rkt-v1 is a containerd runtime v2 shim. It runs containers as apps in pods.
Each pod is isolated by an exchangeable image of executables, a stage1. With the default
stage1, pods are plain Linux containers.`
)

// writePackages writes a deb and an rpm. Neither depends on a containerd, which may have come as a
// package of the distribution, of Docker, or as a tarball.
func writePackages(r *release, dir string) error {
	for _, format := range []string{"deb", "rpm"} {
		if err := writePackage(r, dir, format); err != nil {
			return err
		}
	}
	return nil
}

func writePackage(r *release, dir, format string) error {
	// nfpm reads contents from files.
	texts, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(texts)
	contents, err := r.contents(texts)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: r.name, Arch: r.arch, Platform: "linux", Version: r.version, VersionSchema: "semver",
		Section: "admin", Priority: "optional", Maintainer: maintainer,
		Homepage: homepage, DisableGlobbing: true, MTime: r.time,
		Overridables: nfpm.Overridables{
			Contents: contents,
			RPM:      nfpm.RPM{BuildHost: "localhost"},
			Deb:      nfpm.Deb{Compression: "xz"},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if r.kernel != nil {
		describeMachines(info, format, packager)
	} else {
		r.describe(info, format)
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	info.Target = packager.ConventionalFileName(info)
	return create(filepath.Join(dir, info.Target), func(w io.Writer) error { return packager.Package(info, w) })
}

// describe says what the package is, and what it needs.
func (r *release) describe(info *nfpm.Info, format string) {
	info.Description, info.License = description, "Apache-2.0"
	info.Suggests = []string{"runc", "systemd-container"} // of the stage1s oci and nspawn
	info.Scripts = r.scripts(format)
	if format == "deb" {
		info.Recommends = []string{"containerd | containerd.io"}
		return
	}
	info.Recommends = []string{"containerd"} // Docker's containerd.io provides that name
	info.Contents = append(info.Contents, r.sharedDirs()...)
	info.RPM.Summary, _, _ = strings.Cut(description, "\n")
}

// sharedDirs returns the directories of the shells' completions. rpm removes an empty directory
// only if a package owns it, and more than one may. dpkg removes all empty directories.
func (r *release) sharedDirs() (dirs files.Contents) {
	seen := map[string]bool{}
	for _, e := range r.entries {
		for dir := path.Dir(e.path); strings.Contains(dir, "/"); dir = path.Dir(dir) {
			shell := strings.Split(dir, "/")[1]
			if seen[dir] || !slices.Contains([]string{"bash-completion", "fish", "zsh"}, shell) {
				continue
			}
			seen[dir] = true
			dirs = append(dirs, &files.Content{
				Destination: "/usr/" + dir, Type: files.TypeDir,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.time},
			})
		}
	}
	return dirs
}

// scripts returns the maintainer scripts. The two formats call them with other arguments.
func (r *release) scripts(format string) nfpm.Scripts {
	script := func(name string) string { return filepath.Join(r.source, "scripts/package", format+"-"+name) }
	return nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")}
}

// contents returns the entries below /usr. Texts are written into a directory.
func (r *release) contents(texts string) (files.Contents, error) {
	var all files.Contents
	for _, e := range r.entries {
		c := &files.Content{
			Destination: "/usr/" + e.path,
			FileInfo:    &files.ContentFileInfo{Owner: "root", Group: "root", Mode: e.mode, MTime: r.time},
		}
		switch e.kind {
		case "dir":
			c.Type = files.TypeDir
		case "link":
			c.Type, c.Source = files.TypeSymlink, e.value
		default:
			c.Type, c.Source = files.TypeFile, e.from
			if e.from == "" {
				c.Source = filepath.Join(texts, filepath.Base(e.path))
				if err := os.WriteFile(c.Source, []byte(e.text), 0o644); err != nil {
					return nil, err
				}
			}
		}
		all = append(all, c)
	}
	return all, nil
}
