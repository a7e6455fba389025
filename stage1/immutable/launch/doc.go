// Package launch starts an entrypoint whose process must exist, with its pid, cgroup and
// network namespace, before the process executes the entrypoint. rkt's stage 0 did the
// same.
//
// A launcher is the shim's own executable under another name. It waits for orders on a
// socket, and then executes the entrypoint in its own process. It does not know what a pod
// is.
//
//	Start ──► Join (cgroup, namespace, streams) ──► Exec
//	              (may be left out)                  the socket is closed by the exec
package launch
