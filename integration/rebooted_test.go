package integration

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// rebooted is a node after a power loss: a mount namespace in which the boot is another one, /run is empty, and a disk
// is mounted on the directory of the node's containerd. Processes and cgroups are those of the host, so containers of
// the node itself run on, and a collector that takes them for its own is noticed.
type rebooted struct {
	*node
	t   *testing.T
	pid int // of the process that holds the mount namespace
}

// rebootScript makes the mounts. Its first argument is the directory, and the others are those of mount.
const rebootScript = `
set -eu
dir=$1
shift
awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r m; do umount -l "$m"; done
mount -t tmpfs none /run
echo 00000000-0000-4000-8000-000000000001 > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
mount "$@" "$dir"
echo up
exec cat`

// reboot makes the mount namespace, in which mount has these arguments and the directory.
func (n *node) reboot(t *testing.T, mount ...string) *rebooted {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", rebootScript, "sh", n.daemon.Dir()}, mount...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("reboot: %q, %v: %s", line, err, stderr.String())
	}
	return &rebooted{n, t, cmd.Process.Pid}
}

// path is a path of the node's directory, as this process reads it.
func (r *rebooted) path(elem ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(r.pid), "root", r.daemon.Dir()}, elem...)...)
}

// call executes a program of the shim's on the node, in a directory.
func (r *rebooted) call(dir, program string, args ...string) result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	all := append([]string{"-t", strconv.Itoa(r.pid), "-m", "env", "-C", dir, filepath.Join(suite.shims, program)}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", all...)
	cmd.Env = append(cmd.Environ(), "RKT_DATA_DIR="+dataDir(r.daemon.Dir()), "RKT_CONFIG="+r.file)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		r.t.Fatalf("%s %q: %v", program, args, err)
	}
	return result{args: append([]string{program}, args...), code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// rktctl calls the operator's command on the node.
func (r *rebooted) rktctl(args ...string) result {
	r.t.Helper()
	return r.call("/", "rktctl", args...)
}

// works checks that a call succeeds, and returns its output.
func (r *rebooted) works(args ...string) string {
	r.t.Helper()
	got := r.rktctl(args...)
	if got.code != 0 {
		r.t.Errorf("%q: %d: %s%s", got.args, got.code, got.stdout, got.stderr)
	}
	return strings.TrimSpace(got.stdout)
}

// deletesBundles calls `delete` for each container and sandbox whose bundle is on the disk, as containerd does.
func (r *rebooted) deletesBundles() {
	r.t.Helper()
	for _, bundle := range r.glob("state/io.containerd.*/" + r.daemon.Namespace() + "/*") {
		dir := filepath.Join(r.daemon.Dir(), bundle)
		got := r.call(dir, r.shimProgram(), "-namespace", r.daemon.Namespace(), "-address", r.daemon.Address(), "-publish-binary", "containerd",
			"-id", filepath.Base(dir), "-bundle", dir, "delete")
		if got.code != 0 {
			r.t.Errorf("delete %s: %d: %s", filepath.Base(dir), got.code, got.stderr)
		}
	}
}

// collects makes a new pod, calls `delete` for every container, and collects all pods. It returns the new pod, which runs.
func (r *rebooted) collects(stage1 string) (next string) {
	r.t.Helper()
	next = r.works("app", "sandbox", "--stage1", stage1)
	r.deletesBundles()
	r.works("gc")
	r.works("list")
	if listed := r.works("app", "list", "--output", "json"); next == "" || !strings.Contains(listed, next) || !strings.Contains(listed, "running") {
		r.t.Errorf("the new pod %s: %s", next, listed)
	}
	return next
}

// leavesNothingBut checks that the disk has only this pod, and nothing after its removal.
func (r *rebooted) leavesNothingBut(next string) {
	r.t.Helper()
	r.hasPodsOf(next)
	r.works("app", "rm", next, "--pod")
	r.hasPodsOf("")
}

// hasPodsOf checks that the disk has no pod except one, and that nothing is mounted in others.
func (r *rebooted) hasPodsOf(uuid string) {
	r.t.Helper()
	left := append(r.glob("rkt/pods/*/*"), append(r.glob("rkt/local/*"), r.glob("rkt/debug/*")...)...)
	left = slices.DeleteFunc(left, func(path string) bool { return uuid != "" && filepath.Base(path) == uuid })
	for line := range strings.Lines(read(r.t, "/proc/"+strconv.Itoa(r.pid)+"/mountinfo")) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, r.daemon.Dir()+"/") && (uuid == "" || !strings.Contains(point, uuid)) {
			left = append(left, "mount "+point)
		}
	}
	if len(left) > 0 {
		r.t.Errorf("left:\n\t%s", strings.Join(left, "\n\t"))
	}
}

// glob lists paths below the node's directory.
func (r *rebooted) glob(pattern string) (found []string) {
	r.t.Helper()
	paths, err := filepath.Glob(r.path(pattern))
	must(r.t, err)
	for _, path := range paths {
		rel, err := filepath.Rel(r.path(), path)
		must(r.t, err)
		found = append(found, rel)
	}
	return found
}
