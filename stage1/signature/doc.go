// Package signature verifies the signatures of ACIs: FILE.aci.asc beside FILE.aci, a
// detached and armored one of OpenPGP, against a directory of public keys.
//
//	KEYRING/*                  keys for images of any name
//	KEYRING/root.d/*           the same, where rkt has them
//	KEYRING/prefix.d/PREFIX/*  for images whose names are PREFIX or begin with PREFIX/;
//	                           a slash in PREFIX is written as a comma
//
// An existing /etc/rkt/trustedkeys can be used as it is.
//
// It says who has signed what is read, and not what that is good for. It is linked into
// rktctl and not into the shim, which would grow by 1.3 MB and each of whose processes by
// 0.9 MB (docs/adr/0015).
package signature
