package hold

import (
	"encoding/binary"
	"fmt"
	"runtime"
)

// Numbers of Linux that are the same on every machine.
const (
	sigchld  = 17
	sigIgn   = 1
	sigset   = 8 // bytes in the kernel's set of signals
	eperm    = 1
	wordNR   = 0 // offsets in struct seccomp_data: of the call's number,
	wordArch = 4 // and of the architecture

	prSetDumpable     = 4
	prSetSeccomp      = 22
	seccompModeFilter = 2
	seccompRetErrno   = 0x00050000
	seccompRetAllow   = 0x7fff0000

	bpfLoad     = 0x20 // BPF_LD | BPF_W | BPF_ABS
	bpfJumpIfIs = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	bpfReturn   = 0x06 // BPF_RET | BPF_K
)

// machine has the values that differ between architectures.
type machine struct {
	elf, arch                 uint32 // numbers of the architecture in ELF and in the kernel's audit
	prctl, rtSigaction, ppoll uint32 // numbers of system calls
	call                      func(code []byte, number uint32, args ...uint32) []byte
	jump                      func(code []byte, to int) []byte
}

func machineOf(arch string) (machine, bool) {
	switch arch {
	case "amd64":
		return machine{62, 0xc000003e, 157, 13, 271, callAMD64, jumpAMD64}, true
	case "arm64":
		return machine{183, 0xc00000b7, 167, 134, 73, callARM64, jumpARM64}, true
	}
	return machine{}, false
}

// callAMD64 appends a system call: a mov of 32 bits for each argument and the number.
func callAMD64(code []byte, number uint32, args ...uint32) []byte {
	registers := [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}} // mov $…, %edi, %esi, %edx, %r10d
	for i, arg := range args {
		code = binary.LittleEndian.AppendUint32(append(code, registers[i]...), arg)
	}
	code = binary.LittleEndian.AppendUint32(append(code, 0xb8), number) // mov $…, %eax
	return append(code, 0x0f, 0x05)                                     // syscall
}

// jumpAMD64 appends a short jump to an offset of the code.
func jumpAMD64(code []byte, to int) []byte {
	return append(code, 0xeb, byte(to-len(code)-2)) // relative to the end of this instruction
}

// callARM64 appends a system call: movz and movk for each argument, and movz for the
// number, which is small.
func callARM64(code []byte, number uint32, args ...uint32) []byte {
	const movz, movk, svc, x8 = 0xd2800000, 0xf2a00000, 0xd4000001, 8
	for i, arg := range args {
		low, high := arg&0xffff, arg>>16
		code = binary.LittleEndian.AppendUint32(code, movz|low<<5|uint32(i))
		if high != 0 {
			code = binary.LittleEndian.AppendUint32(code, movk|high<<5|uint32(i))
		}
	}
	code = binary.LittleEndian.AppendUint32(code, movz|number<<5|x8)
	return binary.LittleEndian.AppendUint32(code, svc)
}

// jumpARM64 appends a jump back to an offset of the code.
func jumpARM64(code []byte, to int) []byte {
	const b, mask = 0x14000000, 1<<26 - 1
	return binary.LittleEndian.AppendUint32(code, b|uint32((to-len(code))/4)&mask)
}

const (
	address = 0x400000 // to which the file is loaded

	headerSize, segmentSize = 64, 56
	dataStart               = headerSize + 2*segmentSize
	actionSize, fprogSize   = 32, 16

	actionAt = address + dataStart
	fprogAt  = actionAt + actionSize
	filterAt = fprogAt + fprogSize
)

// data returns the data to which the code points: a struct sigaction that ignores its
// signal, and a filter that allows only ppoll. All other calls fail. That does no harm,
// because the code calls ppoll again after every return.
func (m machine) data() []byte {
	le := binary.LittleEndian
	filter := []struct {
		code            uint16
		then, otherwise uint8 // instructions to skip
		k               uint32
	}{
		{bpfLoad, 0, 0, wordArch},
		{bpfJumpIfIs, 0, 2, m.arch},
		{bpfLoad, 0, 0, wordNR},
		{bpfJumpIfIs, 1, 0, m.ppoll},
		{bpfReturn, 0, 0, seccompRetErrno | eperm},
		{bpfReturn, 0, 0, seccompRetAllow},
	}
	b := le.AppendUint64(nil, sigIgn)
	b = append(b, make([]byte, actionSize-len(b))...)
	b = le.AppendUint64(b, uint64(len(filter))) // struct sock_fprog: 16 bits and padding,
	b = le.AppendUint64(b, filterAt)            // and the address
	for _, i := range filter {
		b = le.AppendUint16(b, i.code)
		b = le.AppendUint32(append(b, i.then, i.otherwise), i.k)
	}
	return b
}

// code returns the instructions of the program, which has four steps:
//
//  1. It makes itself undumpable. Then only a process with privileges over the host can read
//     or trace it, and no process of the same user.
//  2. It ignores SIGCHLD, so that the kernel reaps the processes that it inherits as the
//     first process of a PID namespace.
//  3. It forbids itself all system calls except ppoll. On a kernel without seccomp filters
//     this has no effect.
//  4. It sleeps.
func (m machine) code() []byte {
	c := m.call(nil, m.prctl, prSetDumpable, 0)
	c = m.call(c, m.rtSigaction, sigchld, actionAt, 0, sigset)
	c = m.call(c, m.prctl, prSetSeccomp, seccompModeFilter, fprogAt)
	sleep := len(c)
	return m.jump(m.call(c, m.ppoll, 0, 0, 0, 0), sleep)
}

// Program returns the holder's program, a file of some 400 bytes. A program with a C library
// or a Go runtime would cost every pod some hundred kilobytes.
func Program() ([]byte, error) { return programFor(runtime.GOARCH) }

func programFor(arch string) ([]byte, error) {
	m, ok := machineOf(arch)
	if !ok {
		return nil, fmt.Errorf("the holder of a pod is not written for %s", arch)
	}
	return m.file(), nil
}

// file returns an executable with one segment, and a stack that is not executable. It does
// not use debug/elf, which would add some 60 KB to every stage1.
func (m machine) file() []byte {
	const (
		executable  = 2 // ET_EXEC
		load, stack = 1, 0x6474e551
		r, w, x     = 4, 2, 1
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
	data, code := m.data(), m.code()
	b := append([]byte("\x7fELF"), 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0) // 64 bits, little endian, version 1
	b = le.AppendUint32(half(b, executable, uint16(m.elf)), 1)
	b = long(b, actionAt+uint64(len(data)), headerSize, 0) // where it begins, where the segments are, and the sections
	b = half(le.AppendUint32(b, 0), headerSize, segmentSize, 2, 0, 0, 0)
	size := uint64(dataStart + len(data) + len(code))
	b = segment(b, load, r|x, 0, address, address, size, size, 0x1000)
	b = segment(b, stack, r|w, 0, 0, 0, 0, 0, 16)
	return append(append(b, data...), code...)
}
