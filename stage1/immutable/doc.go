// Package immutable calls the entrypoints of stage1 images whose pods are made with their
// only app: docs/stage1-abi.md, section 10. It works as rkt's stage 0 did, and package
// rktabi builds on it. It makes a mount namespace for the pod, manifests, mounts and
// streams for the app, and a launcher: a process that exists before its program is known.
//
//	Run ──► Add: cgroup, streams, manifests ──► app/start: execve of `run`
//
// Package cmd passes Open to stage1.For. Apart from cmd, only rktabi imports this package.
package immutable
