// Package rpcs puts every RPC of the Task service to a shim, for a task and for
// an exec in every state, and tells the code of each answer and the state that it
// led to. Two shims whose answers are the same look the same to their clients.
//
// It talks with the shims directly: containerd answers some calls by itself.
package rpcs
