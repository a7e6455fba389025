// Package container sets up an app's process between its creation and the exec of its
// program: mounts, devices, root, console, limits, identity.
//
// It has two halves. PrepareApp and PrepareExec run in the supervisor, with the host's
// privileges and mount namespace. They validate the OCI spec, refuse fields that cannot be
// honoured, translate the spec into numbers and descriptors, and open the files that a
// process in a user namespace could not open. Init runs in the new process, inside its
// namespaces, and carries the plan out:
//
//	supervisor            init
//	Prepare ── config ──▶ cgroups, keyring, names
//	        ◀─ devices ──   (if network devices are to be moved)
//	        ──── go ────▶ sysctls, rootfs bound, mounts
//	        ◀── hooks ───
//	        ──── go ────▶ pivot, console, masks, identity
//	        ◀─ console ──   (with the pty's master, if a terminal is wanted)
//	        ◀── ready ───   everything that can fail early has succeeded
//	        ─── start ──▶ startContainer hooks
//	        ◀── exec ────
//	        ◀─ listener ─   (the seccomp filter is in force, if an agent answers its calls)
//	        ──── go ────▶
//	        ◀─── EOF ────   execve succeeded, or the process has died
//
// An ordinary app or exec needs no Init: Prepared.First and Prepared.Program translate its process
// for package fork, and a Builder makes the root of the app meanwhile, with the code of Init, in a
// thread of the supervisor that joins the process's namespaces. Any other
// exec has fewer steps than an app: its process joins the app's namespaces and sends exec. A
// process in a user namespace has no right to set some of its limits. It sends "limits",
// the supervisor calls Prepared.Limit and answers "go".
//
// Directories of an app may be volumes of other containers, which may rename files in them
// at any time. So Init opens a path once, within the app's root, and then uses only that
// descriptor. It makes a mount that is not attached to any path, fills it, sets its flags,
// and then attaches it to the descriptor of its destination.
//
// The package needs Linux 5.14 (mount_setattr, nosymfollow for fsmount). It makes no
// process except hooks, and no namespace except the cgroup namespace: package fork does
// that. It neither makes nor limits cgroups: stage 0 does that.
package container
