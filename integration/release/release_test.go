package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/sassoftware/go-rpmutils"
)

// Both architectures are built twice, from copies with other names, modes and times, as from a
// checkout and a tarball.
func TestReleasesOfTheSameFilesAreTheSame(t *testing.T) {
	var made [2]map[string][]byte
	for i, umask := range []string{"077", "022"} {
		dir := filepath.Join(t.TempDir(), strings.Repeat("x", 1+20*i))
		copyRepository(t, dir, umask)
		cmd := exec.CommandContext(t.Context(), "make", "release", "VERSION=v9.8.7", "REVISION=r1")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", fmt.Sprintf("TZ=Etc/GMT+%d", i))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make release: %v: %s", err, out)
		}
		dist := filepath.Join(dir, "dist")
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sumsFile)
		check.Dir = dist
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		made[i] = read(t, dist)
	}
	var want []string
	for _, arch := range []struct{ deb, rpm string }{{"amd64", "x86_64"}, {"arm64", "aarch64"}} {
		want = append(want,
			"containerd-shim-rkt-9.8.7-linux-"+arch.deb+".tar.gz", "containerd-shim-rkt-9.8.7-linux-"+arch.deb+".cdx.json",
			"containerd-shim-rkt_9.8.7_"+arch.deb+".deb", "containerd-shim-rkt-9.8.7-1."+arch.rpm+".rpm")
	}
	if got := slices.Sorted(maps.Keys(made[0])); !slices.Equal(got, slices.Sorted(slices.Values(append(want, sumsFile)))) {
		t.Errorf("the release has %q", got)
	}
	for file, content := range made[0] {
		if !bytes.Equal(content, made[1][file]) {
			t.Errorf("%s differs", file)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) { allHaveTheFiles(t, made[0], arch) })
	}
}

// allHaveTheFiles compares the files of tarball, deb, rpm and SBOM with the inventory in the tarball.
func allHaveTheFiles(t *testing.T, made map[string][]byte, arch string) {
	const prefix = "containerd-shim-rkt"
	zip, err := gzip.NewReader(bytes.NewReader(made[prefix+"-9.8.7-linux-"+arch+".tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	tarball, contents := untar(t, zip, "")
	const inventory = "share/" + prefix + "/inventory"
	want := map[string]string{inventory: tarball[inventory]}
	for line := range strings.Lines(string(contents[inventory])) {
		path, is, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[path] = is
	}
	same(t, "the tarball", tarball, want)
	for _, path := range []string{"share/man/man1/rktctl-stage1-verify.1", "share/bash-completion/completions/rktctl"} {
		if want[path] == "" {
			t.Errorf("there is no %s", path)
		}
	}

	for path, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		if path != arch {
			continue
		}
		for program, hasVersion := range map[string]bool{
			"bin/" + prefix + "-v1":                               false,
			"libexec/" + prefix + "/containerd-shim-rkt-server-1": true,
			"bin/rktctl": true,
			"libexec/" + prefix + "/stage1/native/rootfs/native": false,
		} {
			f, err := elf.NewFile(bytes.NewReader(contents[program]))
			if err != nil {
				t.Fatalf("%s: %v", program, err)
			}
			if libraries, _ := f.ImportedLibraries(); f.Machine != machine || len(libraries) > 0 || f.Section(".interp") != nil {
				t.Errorf("%s is for %v and needs %q", program, f.Machine, libraries)
			}
			if hasVersion && !bytes.Contains(contents[program], []byte("v9.8.7")) {
				t.Errorf("%s has not the version", program)
			}
		}
	}

	deb := filepath.Join(t.TempDir(), "deb")
	if err := os.WriteFile(deb, made[prefix+"_9.8.7_"+arch+".deb"], 0o644); err != nil {
		t.Fatal(err)
	}
	inDeb, _ := untar(t, bytes.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb)), "./usr/")
	same(t, "the deb", inDeb, want)
	fields := string(output(t, "dpkg-deb", "--field", deb))
	if !strings.Contains(fields, "\nRecommends: containerd | containerd.io\n") || regexp.MustCompile(`(?m)^(Pre-)?Depends:`).MatchString(fields) {
		t.Errorf("the deb has the fields\n%s", fields)
	}

	rpmArch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	p, err := rpmutils.ReadRpm(bytes.NewReader(made[prefix+"-9.8.7-1."+rpmArch+".rpm"]))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the rpm", entriesOf(t, p), want)
	host, _ := p.Header.GetString(rpmutils.BUILDHOST)
	if is, _ := p.Header.GetString(rpmutils.ARCH); is != rpmArch || host != "localhost" {
		t.Errorf("the rpm is for %s, made on %s", is, host)
	}

	var bom cdx.BOM
	if err := json.Unmarshal(made[prefix+"-9.8.7-linux-"+arch+".cdx.json"], &bom); err != nil {
		t.Fatal(err)
	}
	described, libraries := map[string]string{inventory: want[inventory]}, 0
	for _, c := range *bom.Components {
		switch c.Type {
		case cdx.ComponentTypeFile:
			mode, _, _ := strings.Cut(want[c.Name], " ")
			described[c.Name] = mode + " file " + (*c.Hashes)[0].Value
		case cdx.ComponentTypeLibrary:
			libraries++
		}
	}
	maps.DeleteFunc(want, func(_, is string) bool { return !strings.Contains(is, " file ") })
	same(t, "the SBOM", described, want)
	server := slices.IndexFunc(*bom.Dependencies, func(d cdx.Dependency) bool {
		return d.Ref == "file:libexec/containerd-shim-rkt/containerd-shim-rkt-server-1"
	})
	if server < 0 || !slices.ContainsFunc(*(*bom.Dependencies)[server].Dependencies, func(m string) bool {
		return strings.HasPrefix(m, "pkg:golang/github.com/containerd/ttrpc@v")
	}) || libraries < 10 {
		t.Errorf("the SBOM does not say what the server program was built from: %d modules", libraries)
	}
}

// entriesOf describes the entries of an rpm as the inventory does.
func entriesOf(t *testing.T, p *rpmutils.Rpm) map[string]string {
	t.Helper()
	files, err := p.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	inRPM := map[string]string{}
	for _, f := range files {
		path, below := strings.CutPrefix(f.Name(), "/usr/")
		if !below || f.UserName() != "root" || f.GroupName() != "root" {
			t.Errorf("the rpm has %s of %s:%s", f.Name(), f.UserName(), f.GroupName())
		}
		const isDir = 0o040000
		switch {
		case f.Mode()&isDir != 0 && shared.MatchString(path+"/"):
		case f.Linkname() != "":
			inRPM[path] = "- link " + f.Linkname()
		case f.Mode()&isDir != 0:
			inRPM[path] = fmt.Sprintf("0%o dir -", f.Mode()&0o7777)
		default:
			inRPM[path] = fmt.Sprintf("0%o file %s", f.Mode()&0o7777, f.Digest())
		}
	}
	return inRPM
}

// shared matches the directories that other packages have, too.
var shared = regexp.MustCompile(`^(\./|(bin|libexec|share)/|share/(doc|man|man/man1|bash-completion|bash-completion/completions|fish|fish/vendor_completions\.d|zsh|zsh/[a-z-]+)/)?$`)

// same reports an entry that only one of two listings has, or that they describe differently.
func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(want) < 40 {
		t.Errorf("the inventory has %d entries", len(want))
	}
	sameEntries(t, what, got, want)
}

func sameEntries(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for path := range maps.Keys(got) {
		if got[path] != want[path] {
			t.Errorf("%s: %s is %q, want %q", what, path, got[path], want[path])
		}
	}
	for path, is := range want {
		if _, ok := got[path]; !ok {
			t.Errorf("%s has no %s, want %q", what, path, is)
		}
	}
}

// untar describes the entries below a prefix as the inventory does. Directories that others
// share are left out, as dpkg wants them in its archive and the inventory does not name them.
func untar(t *testing.T, r io.Reader, prefix string) (entries map[string]string, contents map[string][]byte) {
	t.Helper()
	entries, contents = map[string]string{}, map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return entries, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		path, ok := strings.CutPrefix(h.Name, prefix)
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s is of %d:%d and from %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		switch {
		case h.Typeflag == tar.TypeDir && (!ok || shared.MatchString(path)):
		case !ok:
			t.Errorf("there is %s", h.Name)
		case h.Typeflag == tar.TypeDir:
			entries[strings.TrimSuffix(path, "/")] = fmt.Sprintf("0%o dir -", h.Mode)
		case h.Typeflag == tar.TypeSymlink:
			entries[path] = "- link " + h.Linkname
		default:
			content, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			contents[path] = content
			entries[path] = fmt.Sprintf("0%o file %x", h.Mode, sha256.Sum256(content))
		}
	}
}

func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if all[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func output(t *testing.T, argv ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return out
}

// copyRepository copies the files that git knows, as they are now.
func copyRepository(t *testing.T, dir, umask string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, "sh", "-c", `cd ../.. && umask "$1" && git ls-files -z | tar --null --files-from - --create | tar --extract --no-same-permissions --touch --directory "$2"`, "sh", umask, dir)
}

func TestAnInventoryThatIsNotOneIsRefused(t *testing.T) {
	for _, text := range []string{"", "bin/x 0755 file abc\n", "bin/x rwx file abc /x\n"} {
		if got, err := parse([]byte(text), "inventory"); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
