// Package shim is the side of the program that containerd sees: the Task and Sandbox
// services over ttrpc, the events for containerd, the streams of containers, and the
// mounting of their root file systems. It translates containerd's words (container, task,
// process) into rkt's (app, exec), and errdefs errors into gRPC statuses.
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
//   - the Sandbox service, for a pod without a pause container: sandbox*.go
//     translate CRI's words for a pod, and make the files that its containers see.
//   - queue: events in the order in which the pod published them. It keeps each event until
//     containerd has accepted it, even if containerd restarts.
//   - stdio: implements pod.Stdio. Output to a fifo is moved with splice(2), by a
//     goroutine that sleeps in the runtime's poller and holds no buffer. Input is moved in
//     the same way, unless the process has a terminal.
//   - logger: a binary:// logging process, which is started again if it dies.
//   - rootfs: implements pod.RootFS by package mount.
//
// It knows no stage1 and no state machine: package pod decides which calls are legal.
// It makes no socket, and no process except loggers: packages manager and cmd do. It
// keeps nothing on disk, except notes of running loggers.
package shim
