// Package container is what happens between the creation of an app's process
// and its program: mounts, devices, root, console, limits, identity, exec.
//
// It has two halves. PrepareApp and PrepareExec run in the supervisor, with
// the host's privileges and mount namespace: they validate the OCI spec,
// refuse by name what cannot be honoured, translate everything into numbers and
// descriptors, and open from outside what a process in a user namespace could
// not. Init runs in the new process, alone in its namespaces, and carries the
// plan out:
//
//	supervisor            init
//	Prepare ── config ──▶ cgroups, keyring, rootfs bound
//	        ◀── hooks ───
//	        ──── go ────▶ mounts, devices, pivot, console, masks, identity
//	        ◀─ console ──   (with the pty's master, if a terminal is wanted)
//	        ◀── ready ───   everything that can fail early has not failed
//	        ─── start ──▶ startContainer hooks
//	        ◀── exec ────
//	        ◀─── EOF ────   execve succeeded, or the process has died
//
// An exec has fewer steps: it joins what is there and sends exec. Limits that a
// process in a user namespace may not set for itself are asked of the
// supervisor with "limits", which is answered with "go" after Prepared.Limit.
//
// Directories of an app may be volumes of other containers, which rename things in
// them while Init looks. So it opens a path once, within the app's root, and does all
// else by that descriptor: a mount is made, filled and given its flags attached to
// nothing, and then attached to the descriptor of its destination.
//
// It needs Linux 5.14 (mount_setattr, nosymfollow for fsmount). It makes no
// process but hooks, creates no namespace but the cgroup one, and neither makes
// nor limits cgroups: the first is package fork's work, the second is stage 0's.
package container
