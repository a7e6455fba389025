// Package shim is the side of the program that containerd sees: the Task and
// Sandbox services over ttrpc, the events that go back, the streams of containers, and
// the mounting of their root file systems. Here containerd's words (container,
// task, process) become rkt's (app, exec) and errdefs errors become gRPC
// statuses.
//
//	containerd ──ttrpc──► Service ──Pod──► package pod
//	           ◄──Forward── queue ◄─Events──┘  │
//	client ◄──fifo, file, logger── stdio ◄─Stdio┘
//
// What it owns:
//
//   - Service: one server for all apps of one pod, registered as
//     containerd.task.v2.Task and containerd.task.v3.Task. Each method of the
//     table in rpc.go is plain logic; the wrapper around it maps errors.
//   - the Sandbox service, for a pod that is asked for by itself: sandbox*.go
//     translate CRI's words for a pod, and make the files that its containers see.
//   - queue: events in the order in which the pod published them, kept until
//     containerd has taken them, across its restarts.
//   - stdio: implements pod.Stdio. Output is moved with splice(2) where the
//     sink is a fifo, by a goroutine that sleeps in the runtime's poller and
//     holds no buffer, and so is standard input without a terminal, from when
//     the process is to be started.
//   - logger: a binary:// logging process and its successors.
//   - rootfs: implements pod.RootFS with containerd's mount package.
//
// What it does not do: it knows no stage1 and no state machine (package pod
// decides what is legal), makes no socket and no process but loggers (package
// manager and cmd do), and keeps nothing on disk.
package shim
