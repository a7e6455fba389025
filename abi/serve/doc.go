// Package serve carries calls of entrypoints over the socket of a stage1, in place of
// executions: docs/stage1-abi.md, section 11. Both ends use it: stage 0 dials, a stage1 that
// is written in Go serves.
//
// A connection carries one call. A message is a line with its word and the number of bytes
// that follow, and these bytes.
package serve
