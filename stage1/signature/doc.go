// Package signature verifies the signatures of ACIs against a directory of public keys. The
// signature of FILE.aci is FILE.aci.asc, a detached and armored OpenPGP signature.
//
//	KEYRING/*                  keys for images of any name
//	KEYRING/root.d/*           the same; rkt's directory for such keys
//	KEYRING/prefix.d/PREFIX/*  for images whose names are PREFIX or begin with PREFIX/;
//	                           a slash in PREFIX is written as a comma
//
// An existing /etc/rkt/trustedkeys can be used as it is.
// The package returns the signer of an image; its caller decides what follows. It is linked
// into rktctl and not into the shim: the shim would grow by 1.3 MB, and each of its
// processes by 0.9 MB (docs/adr/0015).
package signature
