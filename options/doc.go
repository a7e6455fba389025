// Package options has the settings that a client can send in addition to the OCI spec: our
// own message, Options, and the messages that clients send to every runtime, which the
// package translates into Options. docs/options.md describes the settings for users.
//
// The package decides which settings are used, refused or left unused. It applies none:
// package manager starts servers by them, and package shim passes them to the pod.
package options

//go:generate protoc -I=.. --go_out=.. --go_opt=paths=source_relative ../options/rkt_v1.proto
