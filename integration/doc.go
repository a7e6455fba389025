// Package integration tests the shim with a real containerd, by ctr and by containerd's Go
// client. Every case runs once for each runtime ("column"). native, oci and nspawn are the
// bundled stage1s under test. runc is containerd's own shim: it shows that the case itself
// is right. Each column has a containerd of its own and runs its cases one after another,
// so that remains after a case are that case's. The columns run in parallel.
//
// A case runs under the containerd that go.mod pins. Cases that eachRelease marks also run
// under older releases that are in use: 1.7 from its module, 1.6 from Debian's package, each
// with its own ctr. -releases lists the releases; all cases run under the first one.
//
//	make build && go test ./integration/...             # from the module's root: make test-integration
//	go test . -runtimes runc -run TestExec              # try a new case with runc first
//	go test . -releases 1.6                             # everything under an old containerd
//
// It is a module of its own, so that containerd's daemon and client do not become
// dependencies of the shim. The insides of pods, stage1s and the shim are tested in their own
// packages.
package integration
