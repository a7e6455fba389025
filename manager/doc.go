// Package manager is the shim's command line, `start`, `delete`, `-info` and `-v`,
// and the frame of the server process that `start` starts.
//
// It owns the bootstrap with containerd, the grouping of containers into pods'
// servers, the servers' sockets, and everything of the server process except its
// services: log, signals, memory settings, the ttrpc server and its orderly end. It
// knows no pod, no app and no stage1. It declares the functions and interfaces that
// it needs in Program, and cmd supplies them. Package early has what an ordinary `start` or
// `delete` needs as well, and answers these in a program that does not link this package.
//
//	containerd ── start ──► group's socket ──► a server listens ──► its address
//	                             │ none
//	                             ▼
//	                        bind, start a server ──► ready ──► serve ──► retire ──► end
//	                             ▲                     (Service.Shutdown, a signal,
//	                             └ lock per group       or no container ever came)
//
// # Which containerd is asking
//
// containerd 2.3 and later write a BootstrapParams message to stdin and read a
// BootstrapResult. Earlier ones write nothing, or a bare Any with the runtime
// options, and pass addresses by flags and environment. Old options can decode
// as a BootstrapParams, so bytes count as one only if they name the same id and
// namespace as the flags.
//
//	                 stdin            MAX_SHIM_VERSION  answer
//	1.6              nothing or Any   not set           the address, as it is
//	1.7, 2.0 - 2.2   nothing or Any   set               JSON, version 2
//	2.3 -            BootstrapParams  set               BootstrapResult, version 3
//
// The environment variable distinguishes 1.6, which would dial a JSON text, from
// 1.7. Nothing distinguishes 1.7, which refuses version 3, from 2.0 to 2.2, which
// would accept it. Version 2 is right for both: containerd then calls `start` for
// every container and gets the address of the group's server. Version 2 is also
// better for 2.0 to 2.2, because these do not call `delete` for the other containers
// of a pod whose version 3 server has ended. The older releases also need the file
// `address` in the bundle: they reconnect from it after a restart.
//
// # What it does not do
//
// There is no pprof endpoint, because net/http would cost every pod's server memory.
// SIGUSR1 writes all goroutines to the log.
package manager
