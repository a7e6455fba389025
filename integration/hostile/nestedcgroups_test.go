package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// endLimit is how long a container may take to be killed and deleted.
const endLimit = 20 * time.Second

// stays is an argument of each process that an attacker of this file leaves behind.
const stays = "987654"

// nestCgroups makes cgroups so deep that no path leads to the lowest, in each hierarchy that it may
// write to, and puts a process there. A new cpuset accepts no process.
const nestCgroups = `n=$(printf '%0240d' 0)
for h in /sys/fs/cgroup /sys/fs/cgroup/*; do
	cd $h && [ -e cgroup.procs ] && [ ! -e cpuset.cpus ] || continue
	i=0; while [ $i -lt 20 ]; do mkdir $n 2>/dev/null && cd $n || break; i=$((i+1)); done
	[ $i = 20 ] && { sleep ` + stays + ` & echo $! >cgroup.procs; }
done
echo ready; exec sleep ` + stays

// lockCgroups locks the directories of its cgroups, or waits until their owner has died. busybox has
// no flock(1), so it is the host's.
const lockCgroups = `for d in /sys/fs/cgroup /sys/fs/cgroup/*; do
	[ -e $d/cgroup.procs ] || continue
	$(echo /host/lib/*-linux-gnu/ld-linux-*.so.*) --library-path $(echo /host/lib/*-linux-gnu) /host/bin/flock $d sleep ` + stays + ` &
done
echo ready; exec sleep ` + stays

func cgroupsOf(option string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{mount("cgroup", "cgroup", "/sys/fs/cgroup", option, "nosuid", "noexec", "nodev")})
}

func shell(script string, opts ...oci.SpecOpts) spec {
	return spec{image: plainImage, args: []string{"/bin/sh", "-c", script}, opts: opts}
}

// Without a PID namespace of its own, a process does not end with the container's first one.
func TestAContainerWithCgroupsThatCannotBeWalkedOrAreLockedIsKilledAndDeleted(t *testing.T) {
	hostPIDs := oci.WithHostNamespace(specs.PIDNamespace)
	deletes := func(s spec, killShim bool) func(*lab) {
		return func(l *lab) { l.once(func() { l.ends(s, killShim) }) }
	}
	const ours = "the holes were those of this project's own cgroups; package pod/cgroup attacks them"
	hostile(t, attack{classes: "cgroups that a container keeps", name: "nest or lock cgroups, to survive kill and delete", modes: []mode{
		{name: "nested deeper than a path", try: deletes(shell(nestCgroups, cgroupsOf("rw")), false), unproved: ours},
		{name: "nested deeper than a path, host's PID namespace", notFor: noHost, try: deletes(shell(nestCgroups, cgroupsOf("rw"), hostPIDs), false), unproved: ours},
		{name: "nested deeper than a path, the shim is killed", notFor: noHost, try: deletes(shell(nestCgroups, cgroupsOf("rw"), hostPIDs), true), unproved: ours},
		{name: "locked, the shim is killed", notFor: noHost, try: deletes(shell(lockCgroups, cgroupsOf("ro"), first(mount("bind", "/usr", "/host", "bind", "ro")), hostPIDs), true), unproved: ours},
	}})
}

// ends kills and deletes a container, and looks for what is left of it.
func (l *lab) ends(s spec, killShim bool) {
	l.t.Helper()
	task := l.attacker(s)
	cgroups := l.cgroupsOf(int(task.Pid()))
	if l.until(time.Now(), func() bool { return len(l.staying()) > 0 }); len(l.staying()) == 0 {
		l.t.Fatal("the attacker has no process")
	}
	begun := time.Now()
	if killShim { // containerd executes `delete` then
		l.killShims()
	} else {
		l.killAndDelete(task)
	}
	if l.until(begun, func() bool { return l.deleted(task) }); !l.deleted(task) {
		l.got("containerd lists it still")
	}
	l.until(begun, func() bool { return len(l.staying()) == 0 })
	for _, pid := range l.staying() {
		l.got("a process is left: %d", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	l.until(begun, func() bool { return !slices.ContainsFunc(cgroups, exists) })
	for _, dir := range cgroups {
		if exists(dir) {
			l.got("a cgroup is left: %s", dir)
		}
	}
	l.t.Logf("%s", time.Since(begun).Round(time.Millisecond))
}

func (l *lab) killAndDelete(task containerd.Task) {
	ctx, cancel := context.WithTimeout(l.ctx, endLimit)
	defer cancel()
	if err := task.Kill(ctx, unix.SIGKILL, containerd.WithKillAll); err != nil {
		l.got("cannot be killed: %v", err)
	}
	if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
		l.got("cannot be deleted: %v", err)
	}
}

// deleted deletes a task, and reports whether containerd has none any more. While containerd deletes
// that of a shim which has died, a Delete fails.
func (l *lab) deleted(task containerd.Task) bool {
	_, err := task.Delete(l.ctx, containerd.WithProcessKill)
	return err == nil || strings.Contains(err.Error(), "not found")
}

// until waits for a condition, up to endLimit after a time.
func (l *lab) until(begun time.Time, is func() bool) {
	for !is() && time.Since(begun) < endLimit {
		time.Sleep(10 * time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// cgroupsOf returns the directories of a process's cgroups below the namespace of this node.
func (l *lab) cgroupsOf(pid int) (dirs []string) {
	l.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if !strings.Contains(f[2], "/"+l.daemon.Namespace()+"/") {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(f[1], "name="), f[2])
		if exists(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// staying lists the processes of attackers of this file that this node has.
func (l *lab) staying() []int {
	return l.processes(func(cmd, environ string) bool {
		return strings.Contains(cmd, "\x00"+stays) && strings.Contains(environ, "\x00"+nodeVariable+"="+l.short+"\x00")
	})
}

// killShims kills the shims of this node.
func (l *lab) killShims() {
	for _, pid := range l.processes(func(cmd, _ string) bool {
		return strings.Contains(cmd, l.daemon.Address()) && strings.Contains(cmd, "-shim-")
	}) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (l *lab) processes(are func(cmd, environ string) bool) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		cmd, _ := os.ReadFile(proc + "/cmdline")
		environ, _ := os.ReadFile(proc + "/environ")
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil && are(string(cmd), "\x00"+string(environ)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
