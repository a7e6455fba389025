// Package cgroup makes, limits, lists, freezes, kills and removes the cgroup of an
// app, reads its statistics and watches it for a lack of memory.
//
// Stage 0 makes the directories and writes the limits; the app's process enters
// by itself. Nothing here ever writes another process's pid to a cgroup: that
// waits 5 to 20 ms for a grace period of the kernel, and would put a thread of
// ours there if the process was forked by us.
//
// On version 1 a cgroup is one directory in every mounted hierarchy, among them
// name=systemd; controllers that are mounted together share one. On version 2 it
// is one directory, with every controller of its parents delegated. On a hybrid
// host it is version 1.
//
// Where systemd runs, a path of the form slice:prefix:name becomes a scope of its,
// in which the app has a cgroup (scope.go). Elsewhere it is mapped to the directory
// that systemd would use. The placeholder of a scope is the one process that is
// moved by writing its pid.
//
// What the kernel does not announce is looked for in pauses that double, within a
// limit: that a version 1 cgroup has frozen, that its OOM killer has killed, that
// a directory is not busy any more. Everything else is waited for.
//
// The package knows no pod, and no message of containerd's.
package cgroup
