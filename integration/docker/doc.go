// Package docker drives Docker's own daemon and command line client against the
// shim: `make test-docker`. The daemon is built from the module that
// integration/moby pins, and the client is Debian's.
//
// The daemon makes bridges and addresses, so the tests run in an enclosure, the
// stage1s one after the other.
package docker
