// Package immutable calls the entrypoints of stage1 images whose pods are made with their only
// app: docs/stage1-abi.md, section 10. It does so as rkt's stage 0 did, so package rktabi builds
// on it: a mount namespace for the pod, manifests, mounts and streams for the app, and a process
// that waits for its program.
//
//	Run ──► Add: cgroup, streams, manifests ──► app/start: execve of `run`
//
// Package cmd hands Open over to stage1.For. Nothing else imports this package.
package immutable
