package packages

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	crinode "github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// node is a containerd with CRI that finds the shim where an installation has put it.
type node struct {
	t *testing.T
	*daemon.Daemon
	runtime runtimeapi.RuntimeServiceClient
	serial  int
}

// options describe a node.
type options struct {
	dir     string // private directory
	bin     string // directory of the installed shim
	dropIns string
	env     []string
}

// shortDir makes a directory with a path that is short enough for the sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rkt-it-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startNode starts a node, which ends with the test.
func startNode(t *testing.T, o options) *node {
	t.Helper()
	programs, err := binaries.Containerd(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(t.Context(), daemon.Options{
		Dir: o.dir, Programs: programs, Shims: []string{o.bin}, Env: o.env, Namespace: crinode.Namespace,
		Config: crinode.WithDropIns(o.dropIns),
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, Daemon: d}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log ends with:\n%s", d.LogTail(30))
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	n.connect()
	n.load()
	return n
}

func (n *node) connect() {
	n.t.Helper()
	client, err := n.Client()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { client.Close() })
	conn, ok := client.Conn().(grpc.ClientConnInterface)
	if !ok {
		n.t.Fatalf("the client's connection is a %T", client.Conn())
	}
	n.runtime = runtimeapi.NewRuntimeServiceClient(conn)
}

// restart restarts containerd, as an installation does after it has changed the drop-ins.
func (n *node) restart() {
	n.t.Helper()
	if err := n.Stop(); err != nil {
		n.t.Fatal(err)
	}
	if err := n.Resume(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.connect()
	if !wait.Observe(n.t, "CRI serves, which is later than containerd does", func() (bool, string) {
		_, err := n.runtime.Status(n.t.Context(), &runtimeapi.StatusRequest{})
		return err == nil, fmt.Sprint(err)
	}) {
		n.t.FailNow()
	}
	if err := crinode.AwaitImages(n.t.Context(), n.Address(), image.BusyboxName); err != nil {
		n.t.Fatal(err)
	}
}

// load imports busybox, and a pause image made of it.
func (n *node) load() {
	n.t.Helper()
	dir := n.t.TempDir()
	testprog, err := binaries.TestProgram(n.t.Context(), dir)
	if err != nil {
		n.t.Fatal(err)
	}
	images, err := image.Test(testprog)
	if err != nil {
		n.t.Fatal(err)
	}
	pause := image.Image{Name: crinode.PauseImage, Layers: images[0].Layers, Config: images[0].Config}
	pause.Config.Entrypoint = []string{"/bin/testprog", "sleep", "100000"}
	archive := filepath.Join(dir, "images.tar")
	if err := image.WriteFile(archive, images[0], pause); err != nil {
		n.t.Fatal(err)
	}
	if out, err := n.Ctr(n.t.Context(), "image", "import", archive).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	if err := crinode.AwaitImages(n.t.Context(), n.Address(), crinode.PauseImage, image.BusyboxName); err != nil {
		n.t.Fatal(err)
	}
}

// pod is a pod of CRI with containers.
type pod struct {
	n      *node
	id     string
	config *runtimeapi.PodSandboxConfig
}

// run makes a pod of a handler.
func (n *node) run(handler string) (*pod, error) {
	n.serial++
	name := fmt.Sprintf("pod%d", n.serial)
	p := &pod{n: n, config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}}
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*wait.Patience)
	defer cancel()
	made, err := n.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{RuntimeHandler: handler, Config: p.config})
	p.id = made.GetPodSandboxId()
	return p, err
}

// must makes a pod of a handler with a running container.
func (n *node) must(handler string) (*pod, string) {
	n.t.Helper()
	p, err := n.run(handler)
	if err != nil {
		n.t.Fatalf("run a pod: %v", err)
	}
	return p, p.start()
}

// start starts a further container of the pod and returns its id.
func (p *pod) start() string {
	p.n.t.Helper()
	p.n.serial++
	ctx, cancel := context.WithTimeout(p.n.t.Context(), 2*wait.Patience)
	defer cancel()
	made, err := p.n.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("c%d", p.n.serial)},
			Image:    &runtimeapi.ImageSpec{Image: image.BusyboxName},
			Command:  []string{"testprog", "sleep", "100000"},
			Linux:    &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err == nil {
		_, err = p.n.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	}
	if err != nil {
		p.n.t.Fatalf("start a container: %v", err)
	}
	return made.GetContainerId()
}

// works executes a program in a container.
func (n *node) works(when, container string) {
	n.t.Helper()
	r, err := n.runtime.ExecSync(n.t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: []string{"echo", "here"}, Timeout: int64(2 * wait.Patience.Seconds())})
	if err != nil || string(r.GetStdout()) != "here\n" || r.GetExitCode() != 0 {
		n.t.Errorf("%s: %v, %v", when, r, err)
	}
}

func (p *pod) remove() {
	p.n.t.Helper()
	if _, err := p.n.runtime.StopPodSandbox(p.n.t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.n.t.Error(err)
	}
	if _, err := p.n.runtime.RemovePodSandbox(p.n.t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.n.t.Error(err)
	}
}

// server returns the pid of the server of a pod.
func (p *pod) server() int {
	p.n.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.n.Bundle(p.id), "shim.pid"))
	if err == nil {
		var pid int
		if _, err = fmt.Sscan(string(text), &pid); err == nil {
			return pid
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		line, _ := os.ReadFile(path)
		if strings.Contains(string(line), "containerd-shim-rkt") && strings.Contains(string(line), p.id) {
			var pid int
			_, _ = fmt.Sscanf(path, "/proc/%d/", &pid)
			return pid
		}
	}
	p.n.t.Fatalf("pod %s has no server", p.id)
	return 0
}

// kill kills the server of a pod. containerd executes `delete` then.
func (p *pod) kill() {
	p.n.t.Helper()
	if err := syscall.Kill(p.server(), syscall.SIGKILL); err != nil {
		p.n.t.Fatal(err)
	}
}

// run executes a program that must succeed.
func run(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return string(out)
}

// paths lists everything below some directories, except what is below others.
func paths(t *testing.T, roots []string, except ...string) []string {
	t.Helper()
	var all []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if slices.Contains(except, path) {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			all = append(all, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// awaitSame waits until the paths are those of before.
func awaitSame(t *testing.T, what string, before []string, now func() []string) {
	t.Helper()
	wait.Observe(t, what, func() (bool, string) {
		is := now()
		extra := slices.DeleteFunc(slices.Clone(is), func(p string) bool { return slices.Contains(before, p) })
		missing := slices.DeleteFunc(slices.Clone(before), func(p string) bool { return slices.Contains(is, p) })
		return len(extra)+len(missing) == 0, fmt.Sprintf("left: %q, missing: %q", extra, missing)
	})
}
