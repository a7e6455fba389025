package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// measureKubernetes takes pods of two containers through CRI. They use the node's network, so that
// no CNI plugin is measured. runc's shim has a pause container, ours makes pods itself. The floor
// has no pods of CRI.
func measureKubernetes(ctx context.Context, b *bench) (err error) {
	var all []sampler
	n, err := b.openNode(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	conn, err := grpc.NewClient(n.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	for _, s := range b.subjects {
		if s.name != floor {
			all = append(all, sampler{s.name, func(ctx context.Context, record recorder) error {
				return b.measurePodOf(ctx, cri, s, record)
			}})
		}
	}
	return b.turns(ctx, "pods of Kubernetes", b.samples, 2, all...)
}

// openNode starts a containerd of its own, with a handler for each subject.
func (r *rig) openNode(ctx context.Context) (*node.Node, error) {
	dir := filepath.Join(r.dir, "k")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	images, err := r.imagesOfPods(ctx, dir)
	if err != nil {
		return nil, err
	}
	opts := node.Options{Dir: dir, Programs: r.runcShims, Shims: []string{r.shims()}, Images: images}
	for _, s := range r.subjects {
		if s.name == floor {
			continue
		}
		h := node.Handler{Name: s.name, Runtime: s.runtime, Sandboxer: "shim"}
		if s.runtime == runcShim {
			h.Sandboxer = "podsandbox"
		}
		opts.Handlers = append(opts.Handlers, h)
	}
	opts.Default = opts.Handlers[0].Name
	return node.Start(ctx, opts)
}

func (r *rig) imagesOfPods(ctx context.Context, dir string) ([]image.Image, error) {
	program, err := binaries.Program(ctx, dir, "cri/pause")
	if err != nil {
		return nil, err
	}
	pause, err := node.Pause(program)
	if err != nil {
		return nil, err
	}
	images, err := r.images()
	return append(images, pause), err
}

// measurePodOf times RunPodSandbox and two containers that are created and started, and removes the
// pod.
func (b *bench) measurePodOf(ctx context.Context, cri runtimeapi.RuntimeServiceClient, s subject, record recorder) (err error) {
	name := b.id(s)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		LogDirectory: filepath.Join(b.dir, "k", "logs", name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/" + b.daemon.Namespace(), // as the other containers of the benchmark
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	begin := time.Now()
	pod, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: s.name})
	if err != nil {
		return err
	}
	id := pod.GetPodSandboxId()
	defer func() {
		_, stop := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		_, remove := cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		err = errors.Join(err, stop, remove)
	}()
	for i := range 2 {
		if err := startContainer(ctx, cri, id, config, fmt.Sprint("c", i)); err != nil {
			return err
		}
	}
	record(opPodOfTwo, milliseconds(begin))
	return nil
}

func startContainer(ctx context.Context, cri runtimeapi.RuntimeServiceClient, pod string, config *runtimeapi.PodSandboxConfig, name string) error {
	made, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: image.BusyboxName},
		Command:  []string{"sleep", "1000"},
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}})
	if err != nil {
		return err
	}
	_, err = cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	return err
}
