// Package hold describes the holder: the process that holds the namespaces of a pod while
// apps are added and removed. It has the holder's program, which only sleeps, its root file
// system, and its OCI spec, so that a stage1 can run the holder as it runs an app.
//
// Stage 0 uses it for pods of the Sandbox service. Stage1s use it in calls of the rkt ABI,
// because in these they make the pod's namespaces themselves. The package starts and
// watches no process.
package hold
