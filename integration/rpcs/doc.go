// Package rpcs calls every RPC of the Task service of a shim, for a task and for an exec in
// every state. It returns the code of each answer and the state after it. Two shims with the
// same answers look the same to clients.
//
// It calls the shims directly, because containerd answers some calls by itself.
package rpcs
