// Package seccomp compiles the linux.seccomp object of an OCI runtime spec into
// a classic BPF program for seccomp(2).
//
// It has libseccomp's semantics, because that is what profiles are written for
// and tested with: the program gives, for every system call number of every
// architecture and all arguments, the verdict that runc with libseccomp gives.
// The tests hold it to that, number by number, against libseccomp itself and
// against the filter that an installed runc really loads. That includes what
// runc does beyond libseccomp:
//
//   - Several conditions on one argument in one rule become rules of their own,
//     of which one is enough.
//   - Unknown system calls are ignored.
//   - A call that is newer than the profile, that is, whose number is above every
//     one that the profile names on that architecture, answers ENOSYS instead of
//     the default action, unless that lets it happen. Programs then fall back to
//     older calls, where they would take EPERM for the last word.
//
// What it does differently:
//
//   - A system call is found by binary search over ranges of numbers, so that
//     the usual profile costs some six comparisons. ENOSYS is part of those
//     ranges and not a second program in front of the first.
//   - The tables of system calls are as new as golang.org/x/sys, not as the
//     host's libseccomp.
//   - Every rule means what it says. Libseccomp 2.5 gets some profiles wrong that
//     have several rules for one call: it compares the wrong word of an argument
//     after a rule with several conditions or after bounds on both sides of 4
//     GiB; it drops rules, or parts of them, that have an inequality or a bound
//     beside other conditions; for some it never ends. TestWhatLibseccompGetsWrongIsRightHere
//     has examples.
//   - Where rules with different actions overlap, libseccomp's order decides
//     between tests for equality. Between inequalities and bounds it is near to
//     libseccomp's, which has no consistent one.
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
// program, after capabilities were dropped. With SCMP_ACT_NOTIFY the flags ask for a
// listener; handing its descriptor to the agent at listenerPath is the caller's task, too.
package seccomp
