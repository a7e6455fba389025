package pod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
)

// holdCode is what a pod's holder executes: it ignores SIGCHLD, so that the kernel
// reaps whatever orphans it inherits as the first process of a PID namespace, and
// sleeps. Data of 32 bytes follows: the struct sigaction that says so. A C library
// or a Go runtime in its place would cost every pod some hundred kilobytes.
func holdCode(arch string) (machine elf.Machine, code []byte) {
	switch arch {
	case "amd64":
		return elf.EM_X86_64, []byte{
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
		return elf.EM_AARCH64, code
	}
	return elf.EM_NONE, nil
}

// holdAddress is where the program is loaded.
const holdAddress = 0x400000

// holdProgram returns the holder's program, a file of 244 bytes on amd64.
func holdProgram() ([]byte, error) {
	machine, code := holdCode(runtime.GOARCH)
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

// elfFile returns an executable with one segment, and a stack that is not
// executable.
func elfFile(machine elf.Machine, code []byte) []byte {
	var header elf.Header64
	var segment, stack elf.Prog64
	sizes := []uint16{uint16(binary.Size(header)), uint16(binary.Size(segment))}
	start := uint64(sizes[0]) + 2*uint64(sizes[1])

	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	header.Type, header.Machine, header.Version = uint16(elf.ET_EXEC), uint16(machine), uint32(elf.EV_CURRENT)
	header.Entry, header.Phoff = holdAddress+start, uint64(sizes[0])
	header.Ehsize, header.Phentsize, header.Phnum = sizes[0], sizes[1], 2

	size := start + uint64(len(code))
	segment = elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: holdAddress, Paddr: holdAddress, Filesz: size, Memsz: size, Align: 0x1000,
	}
	stack = elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16}

	var b bytes.Buffer
	for _, part := range []any{header, segment, stack, code} {
		_ = binary.Write(&b, binary.LittleEndian, part) // to memory, of fixed size
	}
	return b.Bytes()
}
