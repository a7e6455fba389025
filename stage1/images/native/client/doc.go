// Package client is the entrypoints of the native stage1 but for run: each
// hands its call, with the descriptors that it was given, to the supervisor of
// the pod, and exits with the answer.
//
// It is executed for every call, so it does as little as possible: no
// goroutine, no JSON, no allocation worth mentioning. The text of a failure is
// written by the supervisor; only that there is no supervisor is said here.
package client
