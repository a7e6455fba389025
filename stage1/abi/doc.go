// Package abi is the vocabulary of interface version 7 between stage 0 and a
// stage1: the names of environment variables, the request document, the ready
// line, the status file and the exit codes. docs/stage1-abi.md is its prose;
// the JSON schema beside this file is its third form, and a test holds the
// three together.
//
// It imports the standard library only, so that a program inside a pod can use
// it without linking anything of containerd's. It starts no process and knows
// no pod: calling entrypoints is package stage1's work, serving them is a
// stage1's.
package abi
