// Package supervisor is the native stage1's `run`. There is one supervisor per pod. It
// makes the processes of apps and execs, is their parent, records their exits, and answers
// the pod's other entrypoints. Run is a process of its own, which has a socket for the calls; the
// agent of a machine has a supervisor in it.
//
//	app                                        exec
//	            start            exec succeeds             exec succeeds
//	adding ──▶ added ──▶ starting ──▶ running    entering ──▶ running
//	   │         │          │            │          │            │
//	   │         └──── exit ┴──── ended ◀┘          │     exit   │
//	   └─ failed ─▶ (removed) ◀─ rm ─┘              └▶ (removed)◀┘
//
// An exit is recorded (Run does it on disk), then the process is reaped, then the exit is announced to
// stage 0. If the making of a process has failed, its exit is neither recorded nor
// announced.
//
// The threads of the supervisor stay in the host's namespaces and in the cgroup in which it
// was started. Package fork makes the process of an app, and package container does the
// steps inside the app's namespaces. The supervisor sets no limits, makes no cgroups,
// unmounts nothing and runs no poststop hooks: stage 0 does that.
package supervisor
