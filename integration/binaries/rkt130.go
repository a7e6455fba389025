package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// rktModule is rkt itself, whose last release rkt130/go.mod pins.
const rktModule = "github.com/rkt/rkt"

// RktStage1s returns a directory with rkt's own stage1 images, composed like the makefiles of
// its last release do, unchanged: fly and host, and if systemd is installed also src and
// coreos. The first call on a machine takes half a minute. If they cannot be built, the error
// is exec.ErrNotFound.
//
// Their dependencies have the versions of rkt's glide.lock if these exist as modules. CNI's
// plugin dhcp is left out, because one of its dependencies does not exist as a module.
func RktStage1s(ctx context.Context, log io.Writer) (string, error) {
	if _, ok := prebuilt(); ok {
		return "", fmt.Errorf("%w: rkt's images are not among what is prebuilt", exec.ErrNotFound)
	}
	module, version, err := pinned(ctx, "rkt130", rktModule)
	if err != nil {
		return "", err
	}
	systemd := systemdVersion(ctx)
	name := cacheName("rkt-stage1s", version+"-systemd"+systemd)
	return Cached(name, func(to string) error {
		if err := canCompile(ctx); err != nil {
			return err
		}
		done := Progress(log, "building stage1 images of rkt "+version+" from its module (once, half a minute)")
		defer done()
		r := &rktBuild{ctx: ctx, module: module, version: strings.TrimPrefix(version, "v")}
		err := errors.Join(r.fly(filepath.Join(to, "fly")), r.host(filepath.Join(to, "host")))
		if err != nil || systemd == "" {
			return err
		}
		for flavor, loader := range map[string]string{"src": srcLoader, "coreos": coreosLoader} {
			if err := r.withSystemd(to, flavor, loader, systemd); err != nil {
				return fmt.Errorf("image %s: %w", flavor, err)
			}
		}
		return nil
	})
}

// canCompile returns an error that names the missing headers or tools for C. libsystemd and
// libacl are loaded at run time by name, so only their headers are needed.
func canCompile(ctx context.Context) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "gcc", "-fsyntax-only", "-include", "sys/acl.h", "-x", "c", os.DevNull).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: sys/acl.h, of libacl1-dev: %s", exec.ErrNotFound, out)
	}
	return nil
}

// rktBuild makes images. The paths in it are relative to rkt's sources, or to the root file
// system of an image.
type rktBuild struct {
	ctx             context.Context
	module, version string
	sources         string
}

// fly does the work of stage1_fly/stage1_fly.mk.
func (r *rktBuild) fly(dir string) error {
	root := filepath.Join(dir, "rootfs")
	if err := makeAll(root, "rkt/status", "opt/stage2"); err != nil {
		return err
	}
	return errors.Join(
		r.goPrograms(root, coreosLoader, rktPackages("stage1_fly", "run", "enter", "gc", "stop")),
		os.Symlink("fly", filepath.Join(root, "flavor")),
		r.manifest(dir, "host", "stage1_fly/aci/aci-manifest.in"),
	)
}

// host does the work of stage1/stage1.mk for the flavor host.
func (r *rktBuild) host(dir string) error {
	root := filepath.Join(dir, "rootfs")
	const plugins, units = "usr/lib/rkt/plugins/net", "usr/lib/systemd/system"
	if err := makeAll(root, "etc/rkt/net.d", "opt/stage2", "rkt/iottymux", "rkt/status", "rkt/env",
		plugins, units+"/default.target.wants", units+"/sockets.target.wants"); err != nil {
		return err
	}
	var cni []string
	for _, p := range []string{"main/ptp", "main/bridge", "main/macvlan", "main/ipvlan", "ipam/host-local", "meta/flannel", "meta/tuning"} {
		cni = append(cni, "github.com/containernetworking/cni/plugins/"+p)
	}
	const diagnostic = "stage1/diagnostic/diagnostic-util.c"
	for link, target := range map[string]string{
		"bin": "usr/bin", "flavor": "host", "lib": "usr/lib", "lib64": "usr/lib", "usr/lib64": "lib", // usr_from_host.mk
		"etc/mtab": "../proc/self/mounts", units + "/ctrl-alt-del.target": "reboot.target",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	return errors.Join(
		r.goPrograms(root, coreosLoader, rktPackages("stage1", "init", "gc", "stop", "attach", "iottymux", "app_add", "app_rm", "app_start", "app_stop")),
		r.goPrograms(filepath.Join(root, plugins), coreosLoader, cni),
		r.cProgram(root, "stage1/enter/enter.c"),
		r.cProgram(root, "stage1/enterexec/enterexec.c", diagnostic),
		r.cProgram(root, "stage1/diagnostic/diagnostic.c", diagnostic),
		r.cProgram(root, "stage1/prepare-app/prepare-app.c"),
		r.install(root, 0o755, "stage1/reaper/reaper.sh"),
		r.install(filepath.Join(root, units), 0o644, "stage1/units/units/*.target", "stage1/units/units/*.service"),
		r.install(filepath.Join(root, "etc"), 0o644, "stage1/aci/os-release", "stage1/net/rootfs/etc/hosts-fallback"),
		r.install(filepath.Join(root, "etc/rkt/net.d"), 0o644, "stage1/net/rootfs/etc/rkt/net.d/*"),
		r.manifest(dir, "host", "stage1/aci/aci-manifest.in"),
	)
}

func makeAll(root string, dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func rktPackages(dir string, names ...string) (packages []string) {
	for _, n := range names {
		packages = append(packages, rktModule+"/"+dir+"/"+n)
	}
	return packages
}

// goPrograms builds programs. loader is the path of the loader with which the programs
// start the systemd-nspawn of their image.
func (r *rktBuild) goPrograms(to, loader string, packages []string) error {
	linked := "-s -w -X main.interpBin=" + loader
	args := append([]string{"-C", r.module, "build", "-trimpath", "-tags", "selinux", "-ldflags", linked, "-o", to + "/"}, packages...)
	_, err := outputWith(r.ctx, "CGO_ENABLED=1", args...)
	return err
}

// cProgram builds a C program with the name of its first source.
func (r *rktBuild) cProgram(to string, sources ...string) error {
	dir, err := r.from()
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(sources[0]), ".c")
	args := append([]string{"-Wall", "-Os", "-Istage1/diagnostic", "-static", "-s", "-o", filepath.Join(to, name)}, sources...)
	return run(r.ctx, dir, "gcc", args...)
}

// from returns the directory of rkt's sources.
func (r *rktBuild) from() (_ string, err error) {
	if r.sources == "" {
		r.sources, err = output(r.ctx, "-C", r.module, "list", "-m", "-f", "{{.Dir}}", rktModule)
	}
	return r.sources, err
}

// install copies the files that match patterns.
func (r *rktBuild) install(to string, mode os.FileMode, patterns ...string) error {
	from, err := r.from()
	if err != nil {
		return err
	}
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join(from, p))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("%s has no %s", rktModule, p), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), text, mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifest fills in a template. The template of fly already has a name.
func (r *rktBuild) manifest(dir, flavor, template string) error {
	from, err := r.from()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(from, template))
	if err != nil {
		return err
	}
	values := strings.NewReplacer(
		"@RKT_STAGE1_NAME@", "coreos.com/rkt/stage1-"+flavor, "@RKT_STAGE1_VERSION@", r.version, "@RKT_STAGE1_ARCH@", runtime.GOARCH,
		"@RKT_STAGE1_ENTER@", "/enter", "@RKT_STAGE1_STOP@", "/stop",
	)
	return os.WriteFile(filepath.Join(dir, "manifest"), []byte(values.Replace(string(text))), 0o644)
}
