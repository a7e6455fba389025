// Package rktfront lets the entrypoints of the bundled images be called as rkt's stage 0
// calls those of interface versions 1 to 6: with options, a lock and the pod's manifest in
// the working directory, but without a request document. Their main programs hand it such
// a call (Called), and it executes the image's entrypoints again as interface version 7
// has it:
//
//	rkt's stage 0 ──► run ──────────────► the image's run, app/add, app/start, …
//	                   ▲ socket
//	rkt's stage 0 ──► app/add, enter, …
//
// So its `run` is a stage 0 in small, and stays as long as the pod: it makes requests and
// bundles of what the manifest asks for, takes notices, adopts the processes that an
// entrypoint leaves to it, and records ends as rkt reads them. Its other entrypoints make
// the request of their call and hand that to `run`.
//
// What the manifest asks for and an OCI spec cannot say is an error, with one exception
// that is rkt's: limits of memory and CPU are those of the cgroup that `run` is called in.
// The package makes no process of an app and knows no technology: the image does.
package rktfront
