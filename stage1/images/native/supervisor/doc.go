// Package supervisor is the native stage1's `run`: one process per pod, which
// makes the processes of apps and execs, is their parent, records their ends
// and answers the pod's other entrypoints over a socket.
//
//	app                                        exec
//	            start            exec succeeds             exec succeeds
//	adding ──▶ added ──▶ starting ──▶ running    entering ──▶ running
//	   │         │          │            │          │            │
//	   │         └──── exit ┴──── ended ◀┘          │     exit   │
//	   └─ failed ─▶ (removed) ◀─ rm ─┘              └▶ (removed)◀┘
//
// An end is recorded on disk before the process is reaped, then announced to
// stage 0. A process whose making failed is neither recorded nor announced.
//
// Its threads stay in the host's namespaces and in the cgroup in which it was started. The
// steps in an app's namespaces are package container's, in a process made by package fork.
// It limits nothing, makes no cgroups, unmounts nothing and runs no poststop hooks: stage 0
// does.
package supervisor
