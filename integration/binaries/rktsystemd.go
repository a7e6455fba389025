package binaries

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The loader of programs, and where rkt's configure has it for each flavor.
const (
	loaderName   = "ld-linux-x86-64.so.2"
	srcLoader    = "/lib64/" + loaderName
	coreosLoader = "/usr/lib/" + loaderName
)

// systemdVersion returns the version of the machine's systemd and systemd-nspawn, or an empty
// string.
func systemdVersion(ctx context.Context) string {
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	if err != nil {
		return ""
	}
	words := strings.Fields(string(out)) // systemd 252 (252.39-1~deb12u2)
	if len(words) < 2 {
		return ""
	}
	return words[1]
}

// withSystemd does the work of rkt's stage1/stage1.mk for the flavors that contain systemd: src
// and coreos. The image has the files of the flavor host, the programs of systemd that rkt's
// usr_from_coreos lists, and the libraries that these need. They are copied from the machine's
// packages. rkt took them from CoreOS, or compiled them (usr_from_src).
func (r *rktBuild) withSystemd(to, flavor, loader, version string) error {
	dir := filepath.Join(to, flavor)
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := run(r.ctx, to, "cp", "-a", "host/rootfs", root); err != nil {
		return err
	}
	link := filepath.Join(root, "flavor")
	err := errors.Join(
		os.Remove(link), os.Symlink(flavor, link),
		os.WriteFile(filepath.Join(root, "systemd-version"), []byte("v"+version+"\n"), 0o644),
		r.goPrograms(root, loader, rktPackages("stage1", "init")),
		r.manifest(dir, flavor, "stage1/aci/aci-manifest.in"),
	)
	if err != nil {
		return err
	}
	c := closure{root: root, libraries: map[string]bool{}}
	files, err := r.listed("stage1/usr_from_coreos/manifest-amd64-usr.d/*.manifest")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := c.add(r.ctx, file); err != nil {
			return err
		}
	}
	return c.place(r.ctx, srcLoader, "usr/lib")
}

// listed returns the files of lists, without libraries.
func (r *rktBuild) listed(pattern string) (names []string, err error) {
	from, err := r.from()
	if err != nil {
		return nil, err
	}
	lists, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil || len(lists) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no %s", rktModule, pattern), err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(string(text)) {
			if !strings.HasSuffix(name, ".so") && !strings.Contains(name, ".so.") {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// closure is a root file system that contains all libraries that its programs need.
type closure struct {
	root      string
	libraries map[string]bool
}

// add copies a file of /usr, if the machine has it, with its libraries. Libraries go to
// /usr/lib; systemd's private libraries go to the path where its programs look for them on the
// machine.
func (c closure) add(ctx context.Context, name string) error {
	name = strings.Replace(name, "lib64/", "lib/", 1)
	file := filepath.Join("/usr", name)
	st, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		file = "/" + name // on a machine without merged /usr
		st, err = os.Stat(file)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.place(ctx, file, filepath.Join("usr", filepath.Dir(name))); err != nil {
		return err
	}
	libraries, err := libraries(ctx, file)
	if err != nil {
		return err
	}
	for _, l := range libraries {
		if c.libraries[l] {
			continue
		}
		c.libraries[l] = true
		to := "usr/lib"
		if filepath.Base(filepath.Dir(l)) == "systemd" {
			to = filepath.Dir(l)
			if err := makeAll(c.root, "usr/lib/systemd"); err != nil {
				return err
			}
			target, err := filepath.Rel("/usr/lib/systemd", l)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, filepath.Join(c.root, "usr/lib/systemd", filepath.Base(l))); err != nil {
				return err
			}
		}
		if err := c.place(ctx, l, to); err != nil {
			return err
		}
	}
	return nil
}

// place copies a file, following links, to a directory of the root.
func (c closure) place(ctx context.Context, file, dir string) error {
	if err := makeAll(c.root, dir); err != nil {
		return err
	}
	return run(ctx, c.root, "cp", "--dereference", file, filepath.Join(c.root, dir)+"/")
}

// libraries lists the libraries that a program is linked with.
func libraries(ctx context.Context, file string) (paths []string, err error) {
	program, err := elf.Open(file)
	if err != nil {
		return nil, nil // a script, or a unit
	}
	defer func() { _ = program.Close() }()
	if needed, err := program.ImportedLibraries(); err != nil || len(needed) == 0 {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "ldd", file).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", file, err)
	}
	for line := range strings.Lines(string(out)) { // libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)
		if _, after, ok := strings.Cut(line, " => "); ok {
			paths = append(paths, strings.Fields(after)[0])
		}
	}
	return paths, nil
}
