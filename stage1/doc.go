// Package stage1 calls the entrypoints of a stage1 image of interface version 7. It makes
// the image's tree visible in a pod's directory and executes its entrypoints as
// docs/stage1-abi.md describes, with a request document, a deadline, and the text of a
// failure as the error.
//
//	image.Image ──► For ──► pod.Stage1: Attach, Run, Add, Enter, Invoke, Detach
//	                        Stage1   version 7, apps come and go
//	                        Doors    from cmd, for all other images:
//	                                 immutable.Open and rktabi.Open
//
// It does not know states: the pod decides which call is legal in which state. It keeps
// no process except the supervisor that a pod asked for, and holds no lock while an
// entrypoint runs.
package stage1
