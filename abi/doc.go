// Package abi has the types and names of interface version 7 between stage 0 and a
// stage1: the names of environment variables, the request document, the ready line, the
// status file and the exit codes. docs/stage1-abi.md describes them in prose, and
// request.schema.json describes the request as a JSON schema. A test compares the three.
//
// The package imports only the standard library, so that a program inside a pod can use
// it without linking containerd's packages. It starts no process and knows no pod:
// package stage1 calls entrypoints, and programs below stage1/images implement them.
package abi
