// Package hosts runs containers by a containerd in odd surroundings: with a part of /proc hidden, on
// mounts with unusual options, in a user namespace, and with one system call denied, as by a seccomp
// profile around containerd. In each state one private containerd, in a mount namespace of its own,
// runs the same steps with the stage1s and with runc's shim.
//
// A step that works with runc must work with a stage1, too, or the state must say with which error
// it is refused. The error must name the system call, the file or the cause.
package hosts
