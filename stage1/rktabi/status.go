package rktabi

import "github.com/rkt/containerd-shim-rkt-v1/abi"

// Exit statuses of systemd itself, which rkt's stage1s record for an app that could not be
// executed. Clients expect the status of a shell instead.
const (
	systemdChdir = 200
	systemdExec  = 203
)

// fromRkt translates a status that rkt's stage1s have recorded: an exit code, or the number of
// the signal that has ended the app. The file does not tell these apart, but told does, the
// last signal that stage 0 has sent.
func fromRkt(st abi.Status, told int) abi.Status {
	if st.Signal == 0 && st.Code != 0 && st.Code == told {
		st.Signal, st.Code = told, 128+told
	}
	return fromSystemd(st)
}

// fromSystemd translates the kernel's status of a process that systemd has started.
func fromSystemd(st abi.Status) abi.Status {
	if st.Code == systemdExec || st.Code == systemdChdir {
		st.Code = 127
	}
	return st
}
