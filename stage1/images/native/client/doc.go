// Package client implements all entrypoints of the native stage1 except run. Each one
// passes its call and its descriptors to the supervisor of the pod, and exits with the
// supervisor's answer.
//
// It is executed for every call, so it has no goroutine and no JSON, and allocates little.
// The supervisor writes the text of a failure. The client writes a text only if there is no
// supervisor.
package client
