// Package disk reads and writes the files of a pod, and does the work that needs nothing
// but these files.
//
//	Store: <data>/pods/<state>/<uuid>
//	  └─► Dir: a pod's directory, its lock, shim.json and the pod manifest
//	        ├─► AppDir: appsinfo/NAME, app.json
//	        └─► SandboxFiles: sandbox.json, sandbox/
//	Collector: removes an app or a pod whose server is gone
//
// What it owns:
//
//   - the layout that docs/layout.md describes: rkt's states of a pod, its locks and its
//     renames, and rkt.json in the bundles of containers and sandboxes.
//   - the records: their files and values, and the rule that fields of other
//     releases are kept.
//   - Collector, which does the work of `delete` and removes stale pods. It kills the
//     recorded processes and undoes the recorded mounts, and calls a stage1 for the rest.
//
// It has no states of apps and no goroutine, and does not know package pod, which keeps
// the state in memory. The uses among the files of this package have no cycle.
package disk
