// Package stage1 knows stage1 images and how to call them. It reads an image from
// a directory, an ACI, an OCI layout or archive, or blobs such as those of
// containerd, keeps a verified copy of its tree in a content-addressed store, makes
// that copy visible in a pod's directory, and executes the image's entrypoints as
// docs/stage1-abi.md describes: with a request document, a deadline, and the text of
// a failure as the error.
//
//	Locate ──► Store.Image ──────► New ──► Stage1 (a pod.Stage1)
//	           Import, Rendered:           Attach, Run, Add, Enter, Invoke, Detach
//	           digest, tree
//
// It does not know states: which call is legal when is the pod's business. It
// keeps no process but the supervisor that a pod asked for, and no lock while an
// entrypoint runs.
package stage1
