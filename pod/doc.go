// Package pod is stage 0: a pod, the apps in it, and what is on disk about them.
// It decides what is legal when, and asks a stage1 to do it.
//
//	Service (package shim) ──► Pod ──► session ──► Stage1 (package stage1)
//	                            │         └─► the supervisor: a process, a pidfd
//	                            ├─► app, exec: one state table each, in states.go
//	                            └─► Store: <data>/pods/<state>/<uuid>
//
// What it owns:
//
//   - Pod: the apps that share a stage1. It makes its directory and starts the
//     supervisor with its first app, and ends with its last one.
//   - the states of apps and execs, what may follow what, and the order of the
//     events that say so.
//   - sandboxes: pods that live without apps, too. A process in each, the holder,
//     keeps the namespaces that apps join; hold.go has its program.
//   - Store: the pod directories with rkt's states, locks and renames, the
//     records in them and in bundles, and Collect, which removes an app or a
//     whole pod from what is on disk alone. A Pod in memory is a cache of that.
//   - the app's cgroup (package pod/cgroup) and its processes (package proc):
//     who is signalled, and which exit is whose.
//
// What it does not do: it knows no entrypoint's command line and no image
// (package stage1 does), no message of containerd's (package shim does), and
// copies no stream: stdio comes as open files through the interface Stdio. No
// lock is held while an entrypoint runs, a file system is mounted or a file is
// written.
package pod
