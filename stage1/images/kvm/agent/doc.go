// Command agent is the first process of a machine: the init of its initramfs, and a small
// stage 0 for the supervisor of the stage1 native, which is part of it. It serves the calls of
// the channel (package channel).
//
// The supervisor makes the containers: namespaces, root, mounts, seccomp, capabilities, execs,
// signals, exits. The agent does what stage 0 does elsewhere: it makes each app's cgroup and
// sets its limits, freezes and reads it, reports OOM kills, and carries the streams.
//
// When the machine has booted, it sleeps: until the host wakes it, the agent does nothing that has to do with a pod, and the
// machine may be saved and restored.
//
// The first process of an app that a plan of system calls cannot make is this program, too: see
// becomesApp.
//
// The initramfs has the agent as /init, and may have the directory /modules: its file order
// lists the modules to load, one file name a line.
package main
