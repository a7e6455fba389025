package integration

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// signers are GnuPG keys of people who build images.
type signers struct{ home string }

// newSigners makes keys: Ann's, Bob's, and Old's, which has expired.
func newSigners(t *testing.T) signers {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skipf("gpg signs the images, of Debian's gnupg: %v", err)
	}
	home, err := os.MkdirTemp("", "gpg") // short, for the socket of its agent
	must(t, err)
	s := signers{home}
	t.Cleanup(func() {
		cmd := exec.Command("gpgconf", "--homedir", home, "--kill", "all")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("end the agent of gpg: %v: %s", err, out)
		}
		_ = os.RemoveAll(home)
	})
	for name, flags := range map[string][]string{"ann": nil, "bob": nil, "old": longAgo} {
		life := map[bool]string{true: "1d", false: "never"}[name == "old"]
		s.gpg(t, append(flags, "--quick-generate-key", name+"@example.com", "ed25519", "sign", life)...)
	}
	return s
}

// longAgo makes gpg use an earlier date.
var longAgo = []string{"--faked-system-time", "20200101T000000!"}

func (s signers) gpg(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", s.home, "--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gpg %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// trust puts the public key of a signer into a keyring, as docs/config.md describes.
func (s signers) trust(t *testing.T, keyring, name string) {
	t.Helper()
	s.gpg(t, "--armor", "--output", filepath.Join(keyring, name), "--export", name+"@example.com")
}

func (s signers) sign(t *testing.T, name, aci string, flags ...string) {
	t.Helper()
	s.gpg(t, append(flags, "--armor", "--local-user", name+"@example.com", "--output", aci+".asc", "--detach-sign", aci)...)
}

// packACI makes an ACI of the directory of a stage1, with dependencies.
func packACI(t *testing.T, path, dir string, dependencies ...string) {
	t.Helper()
	var manifest map[string]any
	must(t, json.Unmarshal([]byte(read(t, filepath.Join(dir, "manifest"))), &manifest))
	var names []map[string]string
	for _, name := range dependencies {
		names = append(names, map[string]string{"imageName": name})
	}
	if manifest["dependencies"] = names; names == nil {
		delete(manifest, "dependencies")
	}
	text, err := json.Marshal(manifest)
	must(t, err)
	write(t, filepath.Join(dir, "manifest"), string(text))
	if out, err := exec.Command("tar", "-C", dir, "-cf", path, "manifest", "rootfs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// importFails expects that the import of an ACI fails and that no container runs with it.
func (n *node) importFails(t *testing.T, aci, words string) {
	t.Helper()
	_, err := n.rktctl("stage1", "import", aci)
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || !strings.Contains(string(exit.Stderr), words) {
		t.Errorf("import: %v, want %q", err, words)
	}
	if r := n.run(t, []string{"--rm"}, n.id(), "true"); r.code == 0 || !strings.Contains(r.stderr, "rktctl stage1 import") {
		t.Errorf("a container of an ACI that was not imported: exit code %d, %s", r.code, r.stderr)
	}
}

// imports imports an ACI and returns its digest.
func (n *node) imports(t *testing.T, aci, signer string) (digest string) {
	t.Helper()
	out, err := n.rktctl("stage1", "import", aci)
	_, digest, found := strings.Cut(out, `digest = "`)
	if err != nil || !found || !strings.Contains(out, "# signed by ") || !strings.Contains(out, signer) {
		t.Fatalf("import: %v, %s", err, out)
	}
	return strings.TrimSuffix(digest, "\"\n")
}

// An image is built and signed with gpg, verified at the import against the keyring, named in
// the configuration by its digest, and a container runs with it.
func TestContainersRunOnASignedACIAndOnNoOther(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		n, keys := c.asideNode(t), newSigners(t)
		dir, keyring := t.TempDir(), t.TempDir()
		aci := filepath.Join(dir, "vm.aci")
		keys.trust(t, keyring, "ann")
		keys.trust(t, keyring, "old")
		image := imageOfOurs(t, "native")
		link := filepath.Join(suite.shims, "containerd-shim-rkt-signed-v1")
		if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		n.runtime = "io.containerd.rkt-signed.v1"
		configure := func(line string) { n.says("[aci]\nkeyring = %q\n[stage1.signed]\n%s\n", keyring, line) }
		byPath := "path = '" + aci + "'"
		configure(byPath)

		packACI(t, aci, image)
		n.importFails(t, aci, "vm.aci.asc is not there")
		keys.sign(t, "bob", aci)
		n.importFails(t, aci, "made with a key that is not in "+keyring)
		keys.sign(t, "old", aci, longAgo...)
		n.importFails(t, aci, "old@example.com has expired")
		keys.sign(t, "ann", aci)
		write(t, filepath.Join(image, "rootfs/more"), "tampered with\n")
		packACI(t, aci, image)
		n.importFails(t, aci, "not a good signature")

		keys.sign(t, "ann", aci)
		digest := n.imports(t, aci, "ann@example.com")
		n.run(t, []string{"--rm"}, n.id(), "echo", "by its path").must(t).mustSay(t, "by its path\n")
		configure("digest = '" + digest + "'")
		id := n.id()
		if record := n.runs(id); !strings.Contains(record, digest) {
			t.Errorf("the record of the pod is %s, want %s in it", record, digest)
		}
		n.exec(t, nil, id, "echo", "by its digest").must(t).mustSay(t, "by its digest\n")
		n.ends(id)

		// The file is no longer the one that was imported.
		configure(byPath)
		write(t, filepath.Join(image, "rootfs/more"), "tampered with again\n")
		packACI(t, aci, image)
		n.importFails(t, aci, "not a good signature")

		// The signature of an image does not cover dependencies that it names without an
		// imageID.
		base, dependency := t.TempDir(), filepath.Join(dir, "base.aci")
		write(t, filepath.Join(base, "manifest"), `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/base"}`)
		must(t, os.Mkdir(filepath.Join(base, "rootfs"), 0o755))
		must(t, os.Rename(filepath.Join(image, "rootfs/features.json"), filepath.Join(base, "rootfs/features.json")))
		packACI(t, dependency, base)
		packACI(t, aci, image, "example.com/base")
		keys.sign(t, "ann", aci)
		n.importFails(t, aci, "base.aci.asc is not there")
		keys.sign(t, "ann", dependency)
		n.imports(t, aci, "ann@example.com")
		n.run(t, []string{"--rm"}, n.id(), "echo", "of two images").must(t).mustSay(t, "of two images\n")
		n.expectNothingLeft(t)
	})
}
