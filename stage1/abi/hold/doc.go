// Package hold describes the process that holds the namespaces of a pod while its apps
// come and go: a program that only sleeps, the root file system that it is in, and the
// OCI spec with which a stage1 that can run an app can run it.
//
// Stage 0 has pods of the Sandbox service held by it, and stage1s the pods that rkt's
// interface has them make namespaces for. It starts and watches nothing.
package hold
