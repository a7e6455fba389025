package integration

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	crinode "github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// stage1Node is a Kubernetes node that can choose stage1s. Its pods are in the host's network,
// so it needs no CNI.
type stage1Node struct {
	criDaemon
	t       *testing.T
	handler string
	serial  int
}

func newStage1Node(t *testing.T, d dropIn, configuration string) *stage1Node {
	t.Helper()
	name := "s1-" + d.sandboxer[:4] // short: sockets are in a directory of that name
	d.install(t, name)
	file := filepath.Join(suite.dir, name, "rkt.toml")
	write(t, file, configuration)
	n := &stage1Node{criOf(t, releases[0], name, crinode.WithDropIns("DIR/conf.d"), "RKT_CONFIG="+file), t, d.handler, 0}
	images := filepath.Join(t.TempDir(), "images.tar")
	pause, err := image.Test(suite.testprog)
	if err != nil {
		t.Fatal(err)
	}
	all := append(pause, image.Image{Name: crinode.PauseImage, Layers: pause[0].Layers})
	all[len(all)-1].Config.Entrypoint = []string{"/bin/testprog", "sleep", "100000"}
	if err := image.WriteFile(images, all...); err != nil {
		t.Fatal(err)
	}
	if out, err := n.Ctr(t.Context(), "image", "import", images).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := crinode.AwaitImages(t.Context(), n.Address(), crinode.PauseImage, image.BusyboxName); err != nil {
		t.Fatal(err)
	}
	return n
}

// config returns the configuration of a new pod with annotations.
func (n *stage1Node) config(annotations map[string]string) *runtimeapi.PodSandboxConfig {
	n.serial++
	name := "pod" + string(rune('a'+n.serial))
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Annotations: annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
}

func (n *stage1Node) runPod(config *runtimeapi.PodSandboxConfig) (id string, err error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*wait.Patience)
	defer cancel()
	pod, err := n.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{RuntimeHandler: n.handler, Config: config})
	return pod.GetPodSandboxId(), err
}

// runContainer starts a container in a pod.
func (n *stage1Node) runContainer(pod string, config *runtimeapi.PodSandboxConfig, name string, annotations map[string]string) error {
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*wait.Patience)
	defer cancel()
	made, err := n.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata:    &runtimeapi.ContainerMetadata{Name: name},
			Image:       &runtimeapi.ImageSpec{Image: image.BusyboxName},
			Command:     []string{"testprog", "sleep", "100000"},
			Annotations: annotations,
			Linux:       &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err == nil {
		_, err = n.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	}
	return err
}

func (n *stage1Node) removePod(id string) {
	n.t.Helper()
	if _, err := n.runtime.StopPodSandbox(n.t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		n.t.Error(err)
	}
	if _, err := n.runtime.RemovePodSandbox(n.t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		n.t.Error(err)
	}
}

// records returns the records of all pods that exist.
func (n *stage1Node) records() []string {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(dataDir(n.Dir()), "pods/run/*/shim.json"))
	if err != nil {
		n.t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		all = append(all, read(n.t, f))
	}
	return all
}

// expectNothing waits until no process, mount, cgroup or file of a pod is left.
func (n *stage1Node) expectNothing(after string) {
	n.t.Helper()
	scope := leaks.Scope{Dir: n.Dir(), Namespace: n.Namespace(), Except: []int{n.PID()}, Empty: []string{
		filepath.Join(dataDir(n.Dir()), "pods/run"), filepath.Join(dataDir(n.Dir()), "pods/prepare"), filepath.Join(dataDir(n.Dir()), "pods/exited-garbage"),
	}}
	wait.Observe(n.t, "nothing is left after "+after, func() (bool, string) {
		var left []string
		var err error
		if scope.Pods, err = suite.pods.Of(dataDir(n.Dir())); err == nil {
			left, err = scope.Remains()
		}
		if err != nil {
			return false, err.Error()
		}
		return len(left) == 0, strings.Join(left, "\n\t")
	})
}

// With a pause container the pod's annotation arrives in a config.json, and without one in
// CreateSandbox.
func TestThePodsOfKubernetesChooseTheirStage1(t *testing.T) {
	needOurs(t)
	mine := copyOf(t, "native")
	for _, d := range newDropIns[:2] {
		t.Run(d.sandboxer, func(t *testing.T) {
			n := newStage1Node(t, d, "[stage1.mine]\npath = '"+mine+"'\npods_may_ask = true\n")

			for name, c := range map[string]struct{ key, value, want string }{
				"forbidden": {stage1Annotation, "oci", `annotation io.containerd.rkt.v1/stage1 asks for the stage1 "oci", which pods may not choose here; this pod may have mine or native: change or remove the annotation`},
				"misspelt":  {stage1Annotation, "mien", `asks for the stage1 "mien": did you mean "mine"?`},
				"unknown":   {"io.containerd.rkt.v1/stag1", "mine", `unknown annotation "io.containerd.rkt.v1/stag1": did you mean "io.containerd.rkt.v1/stage1"?`},
			} {
				id, err := n.runPod(n.config(map[string]string{c.key: c.value}))
				if err == nil {
					n.removePod(id)
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %s", name, err, c.want)
				}
				n.expectNothing("a pod whose annotation is " + name)
			}

			config := n.config(map[string]string{stage1Annotation: "mine", "team": "a"})
			id, err := n.runPod(config)
			if err != nil {
				t.Fatal(err)
			}
			if r := n.records(); len(r) != 1 || !strings.Contains(r[0], `"name":"mine"`) || !strings.Contains(r[0], `"by":"annotation"`) {
				t.Errorf("the record of the pod is %q", r)
			}
			// The node's configuration changes, and the pod keeps its stage1.
			write(t, filepath.Join(n.Dir(), "rkt.toml"), "")
			if err := n.runContainer(id, config, "follows", nil); err != nil {
				t.Errorf("a container: %v", err)
			}
			if err := n.runContainer(id, config, "agrees", map[string]string{stage1Annotation: "mine"}); err != nil {
				t.Errorf("a container that asks for what the pod has: %v", err)
			}
			err = n.runContainer(id, config, "differs", map[string]string{stage1Annotation: "native"})
			if err == nil || !strings.Contains(err.Error(), `asks for the stage1 "native", and the pod has mine: all containers of a pod share one`) {
				t.Errorf("a container that asks for another stage1: %v", err)
			}
			n.removePod(id)
			n.expectNothing("the pod")

			id, err = n.runPod(n.config(map[string]string{stage1Annotation: "mine"}))
			if err == nil {
				n.removePod(id)
				t.Error("a new pod has what was forbidden meanwhile")
			}
			id, err = n.runPod(n.config(nil))
			if err != nil {
				t.Fatal(err)
			}
			if r := n.records(); len(r) != 1 || !strings.Contains(r[0], `"name":"native"`) || !strings.Contains(r[0], `"by":"built in"`) {
				t.Errorf("the record of a pod that asks for nothing is %q", r)
			}
			n.removePod(id)
			n.expectNothing("the last pod")
		})
	}
}
