// Package fork starts a process in namespaces that it makes or joins, from a program with
// many threads.
//
// A process with more than one thread cannot join a user namespace, and a Go program always
// has more than one. So Start clones without CLONE_VM: the child has one thread and a copy
// of the memory. Up to its exec, the child makes raw system calls by a plan that the parent
// has prepared. It must not allocate, grow its stack or write a pointer, so the parent
// makes nearly all decisions beforehand. The child first unmaps the memory that is not its
// plan, because processes of containers will see it.
//
//	parent            child                       second child
//	clone ──────────▶ descriptors in place
//	                  unmaps its parent's memory
//	                  joins what exists
//	                  clones once more ─────────▶ (child of the parent, and
//	      ◀─ cloned ─ ends                         inside what was joined)
//	id maps
//	      ─────────────────── go ───────────────▶ joins what has to wait for its
//	                                              enters a cgroup,
//	                                              makes a time namespace,
//	                                              becomes root, leads a session,
//	                                              does what its Program says
//	      ◀── end of file, or the failed step ─── exec
//
// The process of an exec's Program does all that needs rights before the clone by which it appears in the
// namespaces: see Process.outside. If it is also cloned into a cgroup, that is a clone before.
//
// The second clone is made only if it is needed:
//
//   - to enter a PID or user namespace that was joined,
//   - to make a user namespace after other namespaces were joined with the host's rights,
//   - to keep descriptors of the parent out of a process that is cloned into a cgroup, because
//     that cgroup may be frozen.
//
// All other processes need only one clone. Start waits for the end of the child that makes the last clone, and
// then reads its report. If that child was killed, Start fails at once.
//
// During Start the caller must not reap children that it does not know, because Start
// itself reaps the processes that it makes and does not return.
//
// A process executes a program of the host (Start), or a Program of the namespaces that it has
// joined, with an identity and limits of its own (Begin), or nothing (Idle). If that is the first process of an app, it
// waits in its namespaces until its parent has made its root, and again until it is started (First).
//
// The package knows nothing of apps, specs or requests. A process enters a cgroup of version 2 by
// CLONE_INTO_CGROUP. It opens the files of cgroups of version 1 before it joins namespaces; a
// Program enters them, and a program of the host has to do that itself.
package fork
