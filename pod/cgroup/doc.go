// Package cgroup makes, limits, lists, freezes, kills and removes the cgroup of an
// app, reads its statistics and reports when it runs out of memory.
//
// Stage 0 makes the directories and writes the limits; the app's process enters
// by itself. This package does not write another process's pid to a cgroup: such a write
// waits 5 to 20 ms for a grace period of the kernel. The only exception is the placeholder
// of a scope.
//
// On version 1 a cgroup is one directory in every mounted hierarchy, including named ones.
// Controllers that are mounted together share a directory. On version 2 a
// cgroup is a single directory, to which its parents delegate every controller. A hybrid
// host counts as version 1: a cgroup has a directory in the version 2 hierarchy, too, but no limit
// there.
//
// If systemd runs, a path of the form slice:prefix:name becomes a scope of systemd's, in
// which the app has a cgroup (scope.go). Otherwise it is mapped to the directory that
// systemd would use.
//
// The kernel does not announce three events: that a version 1 cgroup has frozen, that the
// OOM killer of version 1 has killed a process, and that a directory is no longer busy.
// The package polls for these, in pauses that double, within a limit. It waits for all
// other events.
//
// The package knows no pod, and no message of containerd's.
package cgroup
