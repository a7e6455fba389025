// Package pod is stage 0: a pod and the apps in it. It decides what is legal when, and
// asks a stage1 to do it.
//
//	Service (package shim) ──► Pod ──► session ──► Stage1 (package stage1)
//	                            │         └─► the supervisor: a process, a pidfd
//	                            ├─► app ──► process, outbox, gate
//	                            │    └─► execs: a process each
//	                            ├─► owner: the apps, a sandbox, or none any more
//	                            └─► what is on disk (package pod/disk)
//
// What it owns:
//
//   - Pod: the apps that share a stage1. Its owner says whether it ends with its last
//     app, or is a sandbox, which runs without apps, too: a process in each, the
//     holder (package abi/hold), keeps the namespaces that apps join.
//   - the states, and what may follow what: a table each for apps and execs
//     (states.go), for the session, which is the one time that a pod's stage1 runs
//     (session_state.go), and for sandboxes (sandbox_state.go). Type stateOf has the
//     state and wakes up the callers that wait for one. Tests hold docs/lifecycle.md
//     against the tables, and find flags that stand beside them.
//   - the order of events: the outbox of each app decides when its events, and those
//     of its execs, are published. The gate counts the execs that are being started,
//     for which a Pause and the exit of the app wait.
//   - the order in which a pod is written to disk (package pod/disk), so that a process
//     that has nothing else can remove it at any step.
//   - the app's cgroup (package pod/cgroup) and its processes (package proc):
//     which processes a signal reaches, and to which app or exec an exit belongs.
//
// members.go has the types that refer to each other, and each verb has a file above it. A
// test finds files that use each other.
//
// What it does not do: it knows no entrypoint's command line and no image
// (package stage1 does), no message of containerd's (package shim does), and
// copies no stream: stdio comes as open files through the interface Stdio. No
// lock is held while an entrypoint runs, a file system is mounted or a file is
// written. Locks are taken in this order: Pod, session or sandbox; app, gate, outbox,
// process.
package pod
