// Command release makes the files of a release for one architecture: a tarball to unpack below
// /usr/local, a deb, an rpm, and an SBOM (CycloneDX). Their contents are those of the inventory
// (scripts/inventory), so that all of them have the same files.
//
// The bytes depend on nothing but the built files, the version and the time that is given:
// neither the clock, nor the host's name, nor the order of a directory gets into them. The
// command is in a module of its own so that neither the shim nor the tests have its dependencies.
package main
