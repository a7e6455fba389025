// Package client is the entrypoints of the native stage1 except run: each passes its call and
// descriptors to the supervisor of the pod, and exits with the answer.
//
// It is executed for every call, so it has no goroutine and no JSON, and allocates little.
// The supervisor writes the text of a failure, the client only that there is no supervisor.
package client
