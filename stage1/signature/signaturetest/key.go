// Package signaturetest makes keys of OpenPGP and signatures for tests. It is imported
// by tests only.
package signaturetest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Key is a pair of keys.
type Key struct {
	entity *openpgp.Entity
	config *packet.Config
}

// New makes a key with a creation time and a lifetime. With a lifetime of 0 the key never
// expires.
func New(tb testing.TB, name string, made time.Time, lives time.Duration) *Key {
	tb.Helper()
	c := &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return made }, KeyLifetimeSecs: uint32(lives / time.Second),
	}
	e, err := openpgp.NewEntity(name, "", name+"@example.com", c)
	if err != nil {
		tb.Fatal(err)
	}
	return &Key{e, c}
}

// Revoke revokes the key.
func (k *Key) Revoke(tb testing.TB) {
	tb.Helper()
	if err := k.entity.RevokeKey(packet.KeyCompromised, "stolen", k.config); err != nil {
		tb.Fatal(err)
	}
}

// Fingerprint returns the key's fingerprint.
func (k *Key) Fingerprint() []byte { return k.entity.PrimaryKey.Fingerprint }

// Public writes the public key to a file, armored or not.
func (k *Key) Public(tb testing.TB, file string, armored bool) {
	tb.Helper()
	var b bytes.Buffer
	if err := k.entity.Serialize(&b); err != nil {
		tb.Fatal(err)
	}
	text := b.Bytes()
	if armored {
		text = wrap(tb, openpgp.PublicKeyType, text)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Sign writes the signature of an image beside it.
func (k *Key) Sign(tb testing.TB, image string) {
	tb.Helper()
	k.SignWith(tb, image, k.config)
}

// SignWith is Sign with other settings.
func (k *Key) SignWith(tb testing.TB, image string, c *packet.Config) {
	tb.Helper()
	content, err := os.ReadFile(image)
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, k.entity, bytes.NewReader(content), c); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(image+".asc", b.Bytes(), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func wrap(tb testing.TB, kind string, text []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, kind, nil)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
