// Package options is what a client can ask of the shim beside the OCI spec: our
// own message, Options, and the translation into it of those that clients send
// to every runtime. docs/options.md says it for users.
//
// It owns the rules by which a setting is used, refused or left unused. What a
// setting does is not its business: package manager starts servers by them, and
// package shim hands them to the pod.
package options

//go:generate protoc -I=.. --go_out=.. --go_opt=paths=source_relative ../options/rkt_v1.proto
