// Package options has the settings that a client can send beside the OCI spec: our own
// message, Options, and the translation into it of the messages that clients send to every
// runtime. docs/options.md describes them for users.
//
// It owns the rules by which a setting is used, refused or left unused. It applies none:
// package manager starts servers by them, and package shim passes them to the pod.
package options

//go:generate protoc -I=.. --go_out=.. --go_opt=paths=source_relative ../options/rkt_v1.proto
