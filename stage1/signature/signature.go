package signature

import (
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/containerd/errdefs"
)

// Suffix is appended to the path of an image to get the path of its signature.
const Suffix = ".asc"

// Verify verifies the signature of an image. file is the path of the image, name its appc
// name, and content the whole image, which Verify reads to the end. signer is the
// fingerprint of the key in the directory that has signed the image, and the key's
// identity. The error for a missing or wrong signature unwraps to
// errdefs.ErrPermissionDenied.
func (k Keyring) Verify(file, name string, content io.Reader) (signer string, err error) {
	keys, err := k.keysFor(name)
	if err != nil {
		return "", fmt.Errorf("keyring %s: %w", string(k), err)
	}
	f, err := os.Open(file + Suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not there, and images have to be signed by a key in %s: %w", file+Suffix, string(k), errdefs.ErrPermissionDenied)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	by, err := check(keys, content, f)
	if err == nil {
		return describe(by), nil
	}
	return "", fmt.Errorf("%s: %s: %w", file+Suffix, k.explain(err, by, name), errdefs.ErrPermissionDenied)
}

// check verifies a signature. It refuses MD5 and SHA-1, because an attacker can make two
// files with the same hash, get one of them signed, and use the other.
func check(keys openpgp.EntityList, content, signature io.Reader) (*openpgp.Entity, error) {
	block, err := armor.Decode(io.LimitReader(signature, maxKeys))
	if err != nil {
		return nil, fmt.Errorf("not armored: %w", err)
	}
	if block.Type != openpgp.SignatureType {
		return nil, fmt.Errorf("its armor says %q and not %q", block.Type, openpgp.SignatureType)
	}
	strong := []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA224, crypto.SHA3_256, crypto.SHA3_512}
	return openpgp.CheckDetachedSignatureAndHash(keys, content, block.Body, strong, nil)
}

// explain returns the reason for which a signature was refused, and advice if there is
// any.
func (k Keyring) explain(err error, by *openpgp.Entity, name string) string {
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return fmt.Sprintf("it was made with a key that is not in %s for images called %s: put the key there if you trust it", string(k), name)
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return fmt.Sprintf("the key %s has expired: get its prolonged form, or a new signature", describe(by))
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return fmt.Sprintf("the signature of %s has expired: get a new one", describe(by))
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return fmt.Sprintf("the key %s was revoked", describe(by))
	}
	return fmt.Sprintf("it is not a good signature of this file, which was changed or is another one, or not one that counts: %v", err)
}

// describe returns the fingerprint of a key and its identity.
func describe(e *openpgp.Entity) string {
	if e == nil || e.PrimaryKey == nil {
		return "unknown"
	}
	text := fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)
	if id := e.PrimaryIdentity(); id != nil {
		text += " " + id.Name
	}
	return text
}
