// Command client16 runs a container like Go programs that were built with containerd 1.6: with
// its client, its gogo-generated messages and its typeurl. It is a module of its own because
// these cannot be linked into one program with those of containerd 2.
//
// It prints the container's output, and ends with the container's exit code. If it fails before
// that, it prints the error on stderr and ends with 125.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd"
	"github.com/containerd/containerd/cio"
	"github.com/containerd/containerd/namespaces"
	"github.com/containerd/containerd/oci"
	runtimeoptions "github.com/containerd/containerd/pkg/runtimeoptions/v1"
	"github.com/containerd/containerd/runtime/linux/runctypes"
	runcoptions "github.com/containerd/containerd/runtime/v2/runc/options"
	"github.com/gogo/protobuf/proto"
	"github.com/gogo/protobuf/types"
)

// failed is the exit code if there is no exit code of a container.
const failed = 125

// ask holds the command line.
type ask struct {
	address, namespace, runtime, image, id, fifos string
	options, as                                   string
	args                                          []string
}

func main() {
	var a ask
	flag.StringVar(&a.address, "address", "", "containerd's `socket`")
	flag.StringVar(&a.namespace, "namespace", "", "containerd's `namespace`")
	flag.StringVar(&a.runtime, "runtime", "", "`name` of the runtime")
	flag.StringVar(&a.image, "image", "", "`reference` of the image")
	flag.StringVar(&a.id, "id", "", "`id` of the container")
	flag.StringVar(&a.fifos, "fifo-dir", "", "`directory` for the container's fifos")
	flag.StringVar(&a.options, "options", "none", "message to send: none, runc, config or other")
	flag.StringVar(&a.as, "as", "runtime", "whose options they are: the runtime's, the task's, or with google the runtime's under gogo's own type URL")
	flag.Parse()
	a.args = flag.Args()
	code, err := run(context.Background(), a)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = failed
	}
	os.Exit(code)
}

// message returns one of the option messages that programs built with containerd 1.6 send.
func message(name string) (proto.Message, error) {
	switch name {
	case "none":
		return nil, nil
	case "runc":
		return &runcoptions.Options{
			NoNewKeyring: true, IoUid: 1000, IoGid: 50,
			BinaryName: "/no/such/runc", Root: "/run/runc", SystemdCgroup: true, CriuPath: "/no/such/criu",
		}, nil
	case "config":
		return &runtimeoptions.Options{TypeUrl: "some.runtime/options", ConfigPath: "/no/such/file"}, nil
	case "other":
		return &runctypes.CreateOptions{IoUid: 1000}, nil
	}
	return nil, fmt.Errorf("unknown message %q", name)
}

func run(ctx context.Context, a ask) (code int, err error) {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, a.namespace), time.Minute)
	defer cancel()
	client, err := containerd.New(a.address)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer client.Close()
	runtimeOptions, taskOptions, err := a.messages()
	if err != nil {
		return 0, err
	}
	image, err := client.GetImage(ctx, a.image)
	if err != nil {
		return 0, fmt.Errorf("image: %w", err)
	}
	container, err := client.NewContainer(ctx, a.id, containerd.WithNewSnapshot(a.id, image),
		containerd.WithNewSpec(oci.WithImageConfig(image), oci.WithProcessArgs(a.args...)),
		containerd.WithRuntime(a.runtime, runtimeOptions))
	if err != nil {
		return 0, fmt.Errorf("container: %w", err)
	}
	defer func() {
		if e := container.Delete(ctx, containerd.WithSnapshotCleanup); e != nil && err == nil {
			err = fmt.Errorf("delete container: %w", e)
		}
	}()
	return a.runTask(ctx, container, taskOptions)
}

// messages returns the options of the container's runtime and of its task.
func (a ask) messages() (runtime, task any, err error) {
	m, err := message(a.options)
	if m == nil || err != nil {
		return nil, nil, err
	}
	switch a.as {
	case "runtime":
		return m, nil, nil
	case "task":
		return nil, m, nil
	case "google":
		// Programs that pack the message themselves get this form.
		packed, err := types.MarshalAny(m)
		return packed, nil, err
	}
	return nil, nil, fmt.Errorf("unknown use %q of options", a.as)
}

func (a ask) runTask(ctx context.Context, container containerd.Container, options any) (code int, err error) {
	withOptions := func(_ context.Context, _ *containerd.Client, i *containerd.TaskInfo) error {
		i.Options = options
		return nil
	}
	task, err := container.NewTask(ctx, cio.NewCreator(cio.WithStreams(nil, os.Stdout, os.Stderr), cio.WithFIFODir(a.fifos)), withOptions)
	if err != nil {
		return 0, fmt.Errorf("task: %w", err)
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("wait: %w", err)
	}
	if err := task.Start(ctx); err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	status := <-exited
	if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
		return 0, fmt.Errorf("delete: %w", err)
	}
	return int(status.ExitCode()), status.Error()
}
