// Package packages tests installations: the deb and the rpm, in the guest of `make test-vm`, which
// has dpkg, rpm and systemd to itself; and the installer of contrib/deploy, in a root of its own.
// Pods run through CRI while the installation is upgraded, rolled back and removed.
package packages
