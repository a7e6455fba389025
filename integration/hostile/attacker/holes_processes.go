package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probeProcesses examines all processes that this one sees, but for its ancestors: its parent has the
// same program and the same rights.
func (t target) probeProcesses(say func(string, error)) {
	runtime.LockOSThread() // only the tracing thread can use ptrace(2)
	mine := ancestors()
	for _, pid := range processes() {
		if !mine[pid] {
			t.probeProcess(pid, say)
		}
	}
}

// ancestors returns this process and those above it that are no first process.
func ancestors() map[int]bool {
	all := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !all[pid]; {
		all[pid] = true
		pid, _ = strconv.Atoi(status(fmt.Sprintf("/proc/%d/status", pid))["PPid"])
	}
	if os.Getppid() == 1 {
		all[1] = true // the probes are the container's first process
	}
	return all
}

func (t target) probeProcess(pid int, say func(string, error)) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	which := "another process: "
	if pid == 1 {
		which = "the first process: "
	}
	for _, link := range []string{"root", "cwd", "exe", "ns/mnt", "ns/user"} {
		_, err := os.Readlink(proc + link)
		say(which+link, err)
	}
	for _, file := range []string{"environ", "maps", "auxv"} {
		say(which+file, reads(proc+file))
	}
	_, err := readNames(proc + "fd")
	say(which+"fd", err)
	for _, file := range []string{"mem", "oom_score_adj", "setgroups"} {
		say(which+file+" opens for writing", opens(proc+file))
	}
	for _, secret := range t.secrets {
		for _, dir := range []string{"root", "cwd/" + up} {
			say(which+"a secret through "+dir[:3], reads(proc+dir+secret))
		}
	}
	probeCalls(pid, which, say)
}

// probeCalls tries the system calls that reach into another process.
func probeCalls(pid int, which string, say func(string, error)) {
	say(which+"signals", unix.Kill(pid, 0))
	var limit unix.Rlimit
	say(which+"prlimit", unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit))
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: len(b)}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err == unix.EFAULT { // the address does not exist there: the right was checked before
		err = nil
	}
	say(which+"process_vm_readv", err)
	if fd, err := unix.PidfdOpen(pid, 0); err != nil {
		say(which+"pidfd_open", err)
	} else {
		got, err := unix.PidfdGetfd(fd, 0, 0)
		if err == nil {
			unix.Close(got)
		}
		say(which+"pidfd_getfd", err)
		say(which+"setns", unix.Setns(fd, unix.CLONE_NEWNET))
		unix.Close(fd)
	}
	err = unix.PtraceSeize(pid)
	if err == nil {
		letGo(pid)
	}
	say(which+"ptrace", err)
}
