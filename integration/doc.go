// Package integration drives a real containerd, with ctr and with its Go client, against
// the shim. Every case runs once per runtime ("column"): native, oci and nspawn are
// bundled stage1s under test, and runc is containerd's own shim, with which the case
// itself is checked. Each column has a containerd of its own and runs its cases one after
// another, so that remains after a case belong to that case. The columns run in parallel.
//
// A case runs under the containerd that go.mod pins, and those that eachRelease
// marks also run under the older releases that are in use: 1.7 from its
// module, 1.6 from Debian's package, each with its own ctr. -releases lists the releases;
// all cases run under the first one.
//
//	make build && go test ./integration/...             # from the module's root: make test-integration
//	go test . -runtimes runc -run TestExec              # prove a new case first
//	go test . -releases 1.6                             # everything under an old containerd
//
// It is a module of its own: containerd's daemon and client never become
// dependencies of the shim. What a pod, a stage1 or the shim does inside is
// tested there, not here.
package integration
