// Package launch starts an entrypoint whose process must exist, with its pid, its cgroup and its
// network namespace, before its program is executed in it, as with rkt's stage 0.
//
// A launcher is the shim's own executable under another name. It waits for orders on a socket, and
// is replaced by the entrypoint. It knows nothing of pods.
//
//	Start ──► Join (cgroup, namespace, streams) ──► Exec
//	              (may be left out)                  the socket is closed by the exec
package launch
