package rktabi

import "github.com/rkt/containerd-shim-rkt-v1/abi"

// Exit statuses of systemd's own, which rkt's stage1s record for an app that could
// not be executed: in its place clients expect those of a shell.
const (
	systemdChdir = 200
	systemdExec  = 203
)

// fromRkt reads a status as rkt's stage1s recorded it: an exit code, or the bare
// number of the signal that has ended the app. Nothing in the file tells which: told
// is the last signal that stage 0 has sent.
func fromRkt(st abi.Status, told int) abi.Status {
	if st.Signal == 0 && st.Code != 0 && st.Code == told {
		st.Signal, st.Code = told, 128+told
	}
	return fromSystemd(st)
}

// fromSystemd reads the status of a process that systemd has started, as the kernel
// knows it.
func fromSystemd(st abi.Status) abi.Status {
	if st.Code == systemdExec || st.Code == systemdChdir {
		st.Code = 127
	}
	return st
}
