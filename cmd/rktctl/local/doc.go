// Package local makes and changes local pods: pods without containerd, each served by a
// server of the shim's (docs/adr/0026-pods-without-containerd.md).
//
//	Store: <data>/local
//	  └─► Pod: UUID/, pod.json, the sandbox's bundle, its server
//	        └─► app: apps/NAME, app.json, the app's bundle
//
// What it owns:
//
//   - the files below <data>/local (docs/layout.md), and the locks that order commands.
//   - the commands: Store.Create, Pod.Add, Start, Stop, Remove, Exec, Status …. Each can be
//     killed at any instruction. The next command finds the intent on disk and goes on.
//   - the answer to "which state does this app have?": from the server if it is running,
//     otherwise from the records of the pod.
//
// It speaks to a server as containerd does, by the Task and Sandbox services, and has no process
// of its own that stays. It knows no stage1, and neither does it know command lines.
package local
