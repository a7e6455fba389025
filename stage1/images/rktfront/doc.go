// Package rktfront lets rkt's stage 0 run the bundled images, which implement interface
// version 7. rkt knows interface versions 1 to 6 only. In these a call has options, and
// finds a lock and the pod's manifest in the working directory; there is no request
// document. The main program of an image recognises such a call (Called) and passes it to
// this package, which executes the image's entrypoints again by the rules of version 7:
//
//	rkt's stage 0 ──► run ──────────────► the image's run, app/add, app/start, …
//	                   ▲ socket
//	rkt's stage 0 ──► app/add, enter, …
//
// So its `run` is a small stage 0, which runs as long as the pod. It makes requests and
// bundles from the manifest, reads notices, adopts the processes that entrypoints leave to
// it, and records exits in rkt's form. Its other entrypoints make the request of their
// call and send it to `run`.
//
// If the manifest asks for something that an OCI spec cannot express, the call fails.
// There is one exception, as in rkt: limits of memory and CPU are those of the cgroup in
// which `run` is called. The package makes no process of an app and does not depend on how
// an image isolates apps.
package rktfront
