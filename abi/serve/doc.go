// Package serve carries calls of entrypoints over the socket of a stage1, in place of
// executions: docs/stage1-abi.md, section 11. Both ends use it: stage 0 dials, and a stage1
// written in Go serves.
//
// A connection carries one call. A message is a line with its word and the number of bytes
// that follow, and then these bytes.
package serve
