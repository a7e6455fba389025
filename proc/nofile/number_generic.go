//go:build arm64 || riscv64 || loong64

package nofile

const prlimit64 = 261
