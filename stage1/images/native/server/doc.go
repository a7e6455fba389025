// Package server answers the entrypoints of a pod, which package client is: it accepts
// their calls, runs each on a goroutine of its own, and says how it has ended.
//
// It knows no app. What a call does is its user's.
package server
