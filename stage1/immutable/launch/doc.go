// Package launch starts an entrypoint that cannot be started in one step: its
// process has to exist, with its pid, its cgroup and its network namespace, before
// its program is executed. That program is executed in the same process, as rkt's
// stage 0 did.
//
// A Launcher is the shim's own executable under another name: it waits for orders
// on a socket, and is replaced by the entrypoint. It knows nothing of pods.
//
//	Start ──► Join (cgroup, namespace, streams) ──► Exec
//	              (may be left out)                  the socket is closed by the exec
package launch
