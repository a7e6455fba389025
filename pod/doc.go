// Package pod is stage 0: a pod and the apps in it. It decides which calls are legal, and
// calls a stage1 to carry them out.
//
//	Service (package shim) ──► Pod ──► session ──► Stage1 (package stage1)
//	                            │         └─► the supervisor: a process, a pidfd
//	                            ├─► app ──► process, outbox, gate
//	                            │    └─► execs: a process each
//	                            ├─► owner: the apps, a sandbox, or nothing after the end
//	                            └─► the pod's files (package pod/disk)
//
// What it owns:
//
//   - Pod: the apps that share a stage1. The owner of a pod decides when it ends. A pod
//     that its apps own ends with its last app. A sandbox exists without apps: a process
//     in it, the holder (package abi/hold), keeps the namespaces that apps join.
//   - the states, with a table of legal steps for each kind: for apps and execs
//     (states.go), for the session, which is one run of a pod's stage1
//     (session_state.go), and for sandboxes (sandbox_state.go). Type stateOf has the
//     state and wakes up the callers that wait for one. Tests compare docs/lifecycle.md
//     with the tables, and find flags that duplicate a state.
//   - the order of events: the outbox of each app decides when its events, and those
//     of its execs, are published. The gate counts the execs that are being started; a
//     Pause and the exit of the app wait for these.
//   - the order in which a pod is written to disk (package pod/disk), so that a process
//     that has only the disk can remove the pod after a crash at any step.
//   - the app's cgroup (package pod/cgroup) and its processes (package proc):
//     which processes a signal reaches, and to which app or exec an exit belongs.
//
// members.go has the types that refer to each other. Each verb has a file of its own, which
// uses these types. A test finds files that use each other.
//
// The package knows no entrypoint's command line and no image (package stage1 does) and no
// message of containerd (package shim does). It copies no stream: stdio comes as open files
// through the interface Stdio. No lock is held while an entrypoint runs, a file system is
// mounted or a file is written. Locks are taken in this order: Pod, session or sandbox; app,
// gate, outbox, process.
package pod
