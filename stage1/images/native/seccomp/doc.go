// Package seccomp compiles the linux.seccomp object of an OCI runtime spec into
// a classic BPF program for seccomp(2).
//
// It has libseccomp's semantics, because authors of profiles write and test them with
// libseccomp: for every system call number of every architecture and all arguments, the
// program gives the verdict that runc with libseccomp gives. The tests compare it, number
// by number, with libseccomp itself and with the filter that an installed runc loads. The
// package also does what runc does in addition to libseccomp:
//
//   - If a rule has several conditions on one argument, each condition becomes a rule of
//     its own, so one of them is enough.
//   - Unknown system calls are ignored.
//   - A call is newer than the profile if its number is above all numbers that the profile
//     names on that architecture. Such a call gets ENOSYS instead of the default action,
//     unless the default action allows it. On ENOSYS programs try older calls; EPERM
//     would make them fail.
//
// Differences from libseccomp and runc:
//
//   - A system call is found by binary search over ranges of numbers, so
//     the usual profile costs some six comparisons. ENOSYS is part of those
//     ranges, not a second program before the first.
//   - The tables of system calls are as new as golang.org/x/sys, not as the
//     host's libseccomp.
//   - Every rule has its documented effect. Libseccomp 2.5 compiles some profiles
//     wrongly that have several rules for one call. It compares the wrong word of an
//     argument after a rule with several conditions, or after bounds on both sides of
//     4 GiB. It drops rules, or parts of rules, that combine an inequality or a bound
//     with other conditions. For some profiles it never returns.
//     TestWhatLibseccompGetsWrongIsRightHere has examples.
//   - If rules with different actions overlap, and all test for equality, the order
//     is libseccomp's. With inequalities and bounds it is similar to libseccomp's,
//     which is not consistent.
//   - An architecture that this machine cannot execute is accepted and has no
//     effect. libseccomp refuses architectures of the other byte order.
//
// How a profile becomes a program:
//
//	profile ─lower─► one filter for each architecture: number → rules
//	        ─spans─► number ranges → action or rules
//	        ─emit──► instructions, from the last to the first
//
// The package loads no program and knows no process. The caller installs the program, after
// capabilities were dropped. With SCMP_ACT_NOTIFY the flags ask for a listener; the caller
// passes the listener's descriptor to the agent at listenerPath.
package seccomp
