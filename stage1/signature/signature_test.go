package signature_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/signature"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/signature/signaturetest"
)

func yesterday() time.Time { return time.Now().Add(-24 * time.Hour) }

// place is a keyring and an image, which is not signed.
type place struct {
	keyring, image string
}

func newPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	p := place{filepath.Join(dir, "keys"), filepath.Join(dir, "image.aci")}
	if err := os.Mkdir(p.keyring, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.image, []byte(strings.Repeat("an image\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p place) verify(t *testing.T, name string) (string, error) {
	t.Helper()
	f, err := os.Open(p.image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return signature.Keyring(p.keyring).Verify(p.image, name, f)
}

func TestAGoodSignatureTellsWhoHasMadeIt(t *testing.T) {
	key := signaturetest.New(t, "Ann", yesterday(), 0)
	for name, put := range map[string]func(dir string){
		"armored":         func(dir string) { key.Public(t, filepath.Join(dir, "ann.asc"), true) },
		"not armored":     func(dir string) { key.Public(t, filepath.Join(dir, "ann.gpg"), false) },
		"as rkt's root":   func(dir string) { key.Public(t, filepath.Join(dir, "root.d/0123"), true) },
		"for a prefix":    func(dir string) { key.Public(t, filepath.Join(dir, "prefix.d/example.com,stage1/0123"), true) },
		"for just a name": func(dir string) { key.Public(t, filepath.Join(dir, "prefix.d/example.com,stage1,vm/0123"), true) },
		"among others": func(dir string) {
			signaturetest.New(t, "Bob", yesterday(), 0).Public(t, filepath.Join(dir, "bob"), true)
			key.Public(t, filepath.Join(dir, "carol"), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			put(p.keyring)
			key.Sign(t, p.image)
			signer, err := p.verify(t, "example.com/stage1/vm")
			if want := fmt.Sprintf("%X Ann <Ann@example.com>", key.Fingerprint()); err != nil || signer != want {
				t.Errorf("%q, %v; want %q", signer, err, want)
			}
		})
	}
}

func TestSignaturesThatAreWrongAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, p place, key *signaturetest.Key)
		want    string
	}{
		"there is none": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Public(t, filepath.Join(p.keyring, "k"), true)
			},
			"image.aci.asc is not there",
		},
		"by another key": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Sign(t, p.image)
				signaturetest.New(t, "Ann", yesterday(), 0).Public(t, filepath.Join(p.keyring, "k"), true)
			},
			"made with a key that is not in",
		},
		"no keys at all": {
			func(t *testing.T, p place, key *signaturetest.Key) { key.Sign(t, p.image) },
			"made with a key that is not in",
		},
		"by a key for other names": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Sign(t, p.image)
				key.Public(t, filepath.Join(p.keyring, "prefix.d/example.com,stage/k"), true)
			},
			"for images called example.com/stage1/vm",
		},
		"of an image that was changed": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Sign(t, p.image)
				key.Public(t, filepath.Join(p.keyring, "k"), true)
				f, err := os.OpenFile(p.image, os.O_WRONLY, 0)
				if err == nil {
					_, err = f.WriteAt([]byte{'A'}, 4000)
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"not a good signature of this file",
		},
		"of an image that has become longer": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Sign(t, p.image)
				key.Public(t, filepath.Join(p.keyring, "k"), true)
				if err := os.Truncate(p.image, 9001); err != nil {
					t.Fatal(err)
				}
			},
			"not a good signature of this file",
		},
		"by a key that has expired": {
			func(t *testing.T, p place, _ *signaturetest.Key) {
				key := signaturetest.New(t, "Old", yesterday(), time.Hour)
				key.Sign(t, p.image)
				key.Public(t, filepath.Join(p.keyring, "k"), true)
			},
			"Old <Old@example.com> has expired",
		},
		"that has expired": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.SignWith(t, p.image, &packet.Config{Time: yesterday, SigLifetimeSecs: 60})
				key.Public(t, filepath.Join(p.keyring, "k"), true)
			},
			"the signature of",
		},
		"by a key that was revoked": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Sign(t, p.image)
				key.Revoke(t)
				key.Public(t, filepath.Join(p.keyring, "k"), true)
			},
			"was revoked",
		},
		"that is no signature": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Public(t, filepath.Join(p.keyring, "k"), true)
				key.Public(t, p.image+".asc", true)
			},
			`PGP PUBLIC KEY BLOCK" and not "PGP SIGNATURE"`,
		},
		"that is text": {
			func(t *testing.T, p place, key *signaturetest.Key) {
				key.Public(t, filepath.Join(p.keyring, "k"), true)
				if err := os.WriteFile(p.image+".asc", []byte("it is fine, honestly\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			"not armored",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			key := signaturetest.New(t, "Ann", yesterday(), 0)
			c.prepare(t, p, key)
			signer, err := p.verify(t, "example.com/stage1/vm")
			if !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), c.want) || signer != "" {
				t.Errorf("%q, %v; want %q", signer, err, c.want)
			}
		})
	}
}

// A directory of keys with a fault is an error, and is never used as a directory with fewer
// keys.
func TestAKeyringThatIsWrongIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"it is not there": {os.Remove, "no such file"},
		"a file that is no key": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "k"), []byte("hello"), 0o644) },
			"/k holds no public key",
		},
		"a key that others can write": {
			func(dir string) error {
				return errors.Join(os.WriteFile(filepath.Join(dir, "k"), nil, 0o644), os.Chmod(filepath.Join(dir, "k"), 0o666))
			},
			"/k can be written by others",
		},
		"a directory that others can write": {func(dir string) error { return os.Chmod(dir, 0o777) }, "can be written by others"},
		"a fifo":                            {func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "k"), 0o600) }, "/k is not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			signaturetest.New(t, "Ann", yesterday(), 0).Sign(t, p.image)
			if err := c.spoil(p.keyring); err != nil {
				t.Fatal(err)
			}
			if _, err := p.verify(t, "a"); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), p.keyring) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
