package seccomp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// seccompData is what the kernel shows to a filter about one system call.
type seccompData struct {
	number, arch uint32
	args         [6]uint64
}

func (d *seccompData) word(offset uint32) uint32 {
	switch {
	case offset == offNumber:
		return d.number
	case offset == offArch:
		return d.arch
	case offset < offArgs:
		return 0 // the instruction pointer
	}
	arg := d.args[(offset-offArgs)/8]
	if offset%8 == 4 {
		return uint32(arg >> 32)
	}
	return uint32(arg)
}

// check makes the checks of the kernel, which accepts a program only if it has known
// instructions, aligned loads inside the data, jumps inside the program and a return
// at the end.
func check(prog []unix.SockFilter) error {
	if len(prog) == 0 || len(prog) > unix.BPF_MAXINSNS {
		return fmt.Errorf("%d instructions", len(prog))
	}
	for pc, i := range prog {
		left := uint32(len(prog) - pc - 1)
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if i.K%4 != 0 || i.K >= 64 {
				return fmt.Errorf("%d: load from %d", pc, i.K)
			}
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, unix.BPF_RET | unix.BPF_K:
		case unix.BPF_JMP | unix.BPF_JA:
			if i.K >= left {
				return fmt.Errorf("%d: jump over %d of %d instructions", pc, i.K, left)
			}
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K,
			unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			if uint32(i.Jt) >= left || uint32(i.Jf) >= left {
				return fmt.Errorf("%d: jump over %d or %d of %d instructions", pc, i.Jt, i.Jf, left)
			}
		default:
			return fmt.Errorf("%d: code %#x", pc, i.Code)
		}
	}
	if prog[len(prog)-1].Code != unix.BPF_RET|unix.BPF_K {
		return errors.New("no return at the end")
	}
	return nil
}

// simulate runs a checked program as the kernel would. steps is the number of
// executed instructions.
func simulate(prog []unix.SockFilter, data *seccompData) (verdict uint32, steps int) {
	var a uint32
	for pc := 0; ; pc++ {
		i := prog[pc]
		steps++
		taken := false
		switch i.Code {
		case unix.BPF_RET | unix.BPF_K:
			return i.K, steps
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = data.word(i.K)
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
			continue
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = a == i.K
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			taken = a > i.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = a >= i.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = a&i.K != 0
		}
		if taken {
			pc += int(i.Jt)
		} else {
			pc += int(i.Jf)
		}
	}
}

// mixesWords reports whether a program may compare the wrong word. Libseccomp 2.5
// leaves out the load of a word that it believes to be in the accumulator. It is
// wrong about that if two paths lead to a comparison, by a jump from the middle of
// one rule to the next, and the accumulator has a different word on each path.
func mixesWords(prog []unix.SockFilter) bool {
	type loaded struct{ offset, mask uint32 }
	states := make([]map[loaded]bool, len(prog)) // what each instruction may find
	flow := func(to int, state loaded) {
		if states[to] == nil {
			states[to] = make(map[loaded]bool)
		}
		states[to][state] = true
	}
	flow(0, loaded{})
	for pc, i := range prog { // jumps only go forward
		switch i.Code {
		case unix.BPF_RET | unix.BPF_K:
			continue
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if states[pc] != nil {
				flow(pc+1, loaded{i.K, ^uint32(0)})
			}
			continue
		}
		for state := range states[pc] {
			switch i.Code {
			case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
				state.mask &= i.K
				flow(pc+1, state)
			case unix.BPF_JMP | unix.BPF_JA:
				flow(pc+1+int(i.K), state)
			default:
				if len(states[pc]) > 1 {
					return true
				}
				flow(pc+1+int(i.Jt), state)
				flow(pc+1+int(i.Jf), state)
			}
		}
	}
	return false
}
