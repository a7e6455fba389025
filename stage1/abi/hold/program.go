package hold

import (
	"encoding/binary"
	"fmt"
	"runtime"
)

// Machines, as ELF numbers them.
const (
	machineX86_64  = 62
	machineAArch64 = 183
)

// codeFor returns what a pod's holder executes: it ignores SIGCHLD, so that the kernel
// reaps whatever orphans it inherits as the first process of a PID namespace, and
// sleeps. Data of 32 bytes follows: the struct sigaction that says so. A C library
// or a Go runtime in its place would cost every pod some hundred kilobytes.
func codeFor(arch string) (machine uint16, code []byte) {
	switch arch {
	case "amd64":
		return machineX86_64, []byte{
			0xb8, 0x0d, 0x00, 0x00, 0x00, //             mov  $13, %eax       rt_sigaction
			0xbf, 0x11, 0x00, 0x00, 0x00, //             mov  $17, %edi       SIGCHLD
			0x48, 0x8d, 0x35, 0x13, 0x00, 0x00, 0x00, // lea  action(%rip), %rsi
			0x31, 0xd2, //                               xor  %edx, %edx
			0x41, 0xba, 0x08, 0x00, 0x00, 0x00, //       mov  $8, %r10d
			0x0f, 0x05, //                               syscall
			0xb8, 0x22, 0x00, 0x00, 0x00, //       sleep: mov  $34, %eax       pause
			0x0f, 0x05, //                               syscall
			0xeb, 0xf7, //                               jmp  sleep
		}
	case "arm64":
		for _, instruction := range []uint32{
			0xd28010c8, //        mov x8, #134  rt_sigaction
			0xd2800220, //        mov x0, #17   SIGCHLD
			0x10000161, //        adr x1, action
			0xd2800002, //        mov x2, #0
			0xd2800103, //        mov x3, #8
			0xd4000001, //        svc #0
			0xd2800928, // sleep: mov x8, #73   ppoll
			0xd2800000, //        mov x0, #0
			0xd2800001, //        mov x1, #0
			0xd2800002, //        mov x2, #0
			0xd2800003, //        mov x3, #0
			0xd4000001, //        svc #0
			0x17fffffa, //        b   sleep
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
		return machineAArch64, code
	}
	return 0, nil
}

// address is where the program is loaded.
const address = 0x400000

// Program returns the holder's program, a file of 244 bytes on amd64.
func Program() ([]byte, error) {
	machine, code := codeFor(runtime.GOARCH)
	if code == nil {
		return nil, fmt.Errorf("the holder of a pod is not written for %s", runtime.GOARCH)
	}
	const ignore = 1 // SIG_IGN
	action := [4]uint64{ignore}
	code = binary.LittleEndian.AppendUint64(code, action[0])
	for _, field := range action[1:] {
		code = binary.LittleEndian.AppendUint64(code, field)
	}
	return elfFile(machine, code), nil
}

// elfFile returns an executable with one segment, and a stack that is not executable.
// It is put together by hand: debug/elf would add some 60 KB to every stage1.
func elfFile(machine uint16, code []byte) []byte {
	const (
		header, entry = 64, 56 // sizes of the headers of a file and of a segment
		start         = header + 2*entry
		executable    = 2 // ET_EXEC
		load, stack   = 1, 0x6474e551
		r, w, x       = 4, 2, 1
	)
	le := binary.LittleEndian
	half := func(b []byte, fields ...uint16) []byte {
		for _, f := range fields {
			b = le.AppendUint16(b, f)
		}
		return b
	}
	long := func(b []byte, fields ...uint64) []byte {
		for _, f := range fields {
			b = le.AppendUint64(b, f)
		}
		return b
	}
	segment := func(b []byte, kind, flags uint32, fields ...uint64) []byte {
		return long(le.AppendUint32(le.AppendUint32(b, kind), flags), fields...)
	}
	b := append([]byte("\x7fELF"), 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0) // 64 bits, little endian, version 1
	b = le.AppendUint32(half(b, executable, machine), 1)
	b = long(b, address+start, header, 0) // where it begins, where the segments are, and the sections
	b = half(le.AppendUint32(b, 0), header, entry, 2, 0, 0, 0)
	size := start + uint64(len(code))
	b = segment(b, load, r|x, 0, address, address, size, size, 0x1000)
	b = segment(b, stack, r|w, 0, 0, 0, 0, 0, 16)
	return append(b, code...)
}
