// Package seccomp compiles the linux.seccomp object of an OCI runtime spec into
// a classic BPF program for seccomp(2).
//
// It has libseccomp's semantics, because that is what profiles are written for
// and tested with: the program gives, for every system call number of every
// architecture and all arguments, the verdict that runc with libseccomp gives.
// The tests hold it to that, number by number, against libseccomp itself and
// against the filter that an installed runc really loads. What it does
// differently:
//
//   - A system call is found by binary search over ranges of numbers, so that
//     the usual profile costs some six comparisons.
//   - runc's answer to system calls that are newer than the profile (ENOSYS,
//     so that programs fall back to older calls, where the default action
//     would be an unexpected EPERM or death) is part of those ranges and not a
//     second program in front of the first.
//   - The tables of system calls are as new as golang.org/x/sys, not as the
//     host's libseccomp.
//   - Where several bounds (LT, LE, GE, GT) or inequalities on one argument of
//     one call meet, libseccomp 2.5 mixes up its comparisons and lets calls pass,
//     or refuses some, that no rule means. Here every rule means what it says.
//   - An architecture that this machine cannot execute is accepted and has no
//     effect; libseccomp refuses those of the other byte order.
//
// How a profile becomes a program:
//
//	profile ─lower─► one filter for each architecture: number → rules
//	        ─spans─► number ranges → action or rules
//	        ─emit──► instructions, from the last to the first
//
// The package loads nothing and knows no process: the caller installs the
// program, after capabilities were dropped. SCMP_ACT_NOTIFY needs a listener
// process and is refused.
package seccomp
