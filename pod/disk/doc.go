// Package disk is what is on disk of a pod, and what can be done from disk alone.
//
//	Store: <data>/pods/<state>/<uuid>
//	  └─► Dir: a pod's directory, its lock, shim.json and the pod manifest
//	        ├─► AppDir: appsinfo/NAME, app.json
//	        └─► SandboxFiles: sandbox.json, sandbox/
//	Collector: removes an app or a pod of which no more than this is left
//
// What it owns:
//
//   - the layout that docs/layout.md describes: rkt's states of a pod, its locks and its
//     renames, and rkt.json in the bundles of containers and sandboxes.
//   - the records: which files there are, what may be in them, and that fields of other
//     releases stay in them.
//   - Collector, which does the work of `delete` and removes what is stale. It kills the
//     processes and undoes the mounts that are on record, and calls a stage1 for the rest.
//
// What it does not do: it has no states of apps and no goroutine, and does not know
// package pod, which keeps in memory what it has written here. Files are ordered: none
// uses another one that uses it.
package disk
