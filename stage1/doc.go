// Package stage1 calls the entrypoints of a stage1 image. It makes the image's tree
// visible in a pod's directory and executes its entrypoints: those of interface
// version 7 as docs/stage1-abi.md describes, with a request document, a deadline, and
// the text of a failure as the error; those of versions 1 to 6 as rkt did.
//
//	image.Image ──► For ──► pod.Stage1: Attach, Run, Add, Enter, Invoke, Detach
//	                        Stage1     version 7
//	                        Mutable    rkt's versions 5 and 6, apps come and go
//	                        Immutable  any version, a pod with one app
//
// It does not know states: which call is legal when is the pod's business. It
// keeps no process but the supervisor that a pod asked for, and no lock while an
// entrypoint runs.
package stage1
