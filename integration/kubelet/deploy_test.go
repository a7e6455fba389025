package kubelet

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

const (
	deployDir     = "/run/deploy"            // contrib/deploy, and the contents of its image
	deployNode    = "/run/deploy-node"       // the node's directory
	installedDir  = "/opt/rkt"               // is private in the enclosure; /usr/local is the machine's
	configDir     = "/etc/containerd/conf.d" // the node's containerd imports its files
	restartWanted = "/run/restart"           // made by a DaemonSet that restarts containerd
)

// fillDeploy copies contrib/deploy and a release's files into the enclosure.
func fillDeploy(ctx context.Context, e enclosure.Enclosure) error {
	bin, err := binaries.Built("")
	if err != nil {
		return err
	}
	if err := e.Fill(ctx, enclosure.Copy{From: "../../contrib/deploy", To: deployDir}); err != nil {
		return err
	}
	const pack = `../../scripts/inventory "$1" package >"$2.inventory" && ../../scripts/place "$2" <"$2.inventory"`
	out, err := exec.CommandContext(ctx, "sh", "-ec", pack, "sh", bin, e.Path(deployDir+"/payload")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make the contents of the image: %w: %s", err, out)
	}
	return nil
}

// daemonPod returns the pod that the controller makes of a DaemonSet of contrib/deploy for this
// node, which has no systemd.
func daemonPod(t *testing.T, verb string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, verb, "daemonset.yaml"))
	must(t, err)
	var set appsv1.DaemonSet
	must(t, yaml.UnmarshalStrict(text, &set))
	p := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	p.Name, p.Namespace = set.Name, set.Namespace
	c := &p.Spec.Containers[0]
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "PREFIX", Value: installedDir},
		corev1.EnvVar{Name: "CONF_D", Value: configDir},
		corev1.EnvVar{Name: "RKT_DATA_DIR", Value: deployNode + "/rkt"},
		corev1.EnvVar{Name: "RESTART", Value: "touch " + restartWanted},
	)
	return p
}

// deployNodeImage makes the image that contrib/deploy/Containerfile describes.
func deployNodeImage(t *testing.T, p *corev1.Pod) image.Image {
	t.Helper()
	base, err := image.Busybox()
	must(t, err)
	script, err := os.ReadFile(filepath.Join(deployDir, "node"))
	must(t, err)
	layer := []image.File{{Name: "node", Mode: 0o755, Content: script}}
	must(t, filepath.WalkDir(filepath.Join(deployDir, "payload"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := image.File{Name: strings.TrimPrefix(path, deployDir+"/"), Mode: int64(info.Mode().Perm())}
		switch {
		case d.IsDir():
			f.Name += "/"
		case info.Mode()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(path)
		default:
			f.Content, err = os.ReadFile(path)
		}
		layer = append(layer, f)
		return err
	}))
	i := image.Image{Name: "docker.io/library/" + p.Spec.Containers[0].Image, Layers: [][]image.File{base, layer}}
	i.Config.Entrypoint = []string{"/node"}
	i.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return i
}

// installed lists the files of the installation, and of containerd's drop-ins.
func installed(t *testing.T) (files []string) {
	t.Helper()
	for _, dir := range []string{installedDir, configDir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) { // it is being removed
				return nil
			}
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})
		must(t, err)
	}
	return files
}

// The pods of the DaemonSets run as static pods. A drop-in of the operator's makes rkt the default
// handler, because a kubelet without an API server knows no RuntimeClass.
func TestTheDaemonSetsInstallAndRemoveUnderAPod(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	n := startDeployNode(t)
	must(t, os.MkdirAll(configDir, 0o755))
	config, err := os.ReadFile(filepath.Join(n.Dir(), "config.toml"))
	must(t, err)
	must(t, os.WriteFile("/etc/containerd/config.toml", config, 0o644))
	k := startKubelet(t, n)

	k.run(t, daemonPod(t, "install"))
	k.await(t, "install", "the node is installed", ready)
	if err := os.Remove(restartWanted); err != nil {
		t.Fatalf("containerd was not to be restarted: %v. The DaemonSet's pod said %s", err, k.said("install"))
	}
	own := filepath.Join(configDir, "default.toml")
	t.Cleanup(func() { must(t, os.Remove(own)) })
	must(t, os.WriteFile(own, []byte("version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\n  default_runtime_name = \"rkt\"\n"), 0o644))
	must(t, n.Stop())
	must(t, n.Resume(context.Background()))

	k.run(t, pod("user", shell("c", "until [ -e /tmp/stop ]; do sleep 1; done"), shell("d", "sleep 10000")))
	before := k.await(t, "user", "it is ready", ready)
	if ours, _ := filepath.Glob(filepath.Join(n.Pods(), "run/*")); len(ours) != 1 {
		t.Fatalf("the pods of the handler rkt are %q", ours)
	}
	k.take(t, "install") // kubectl delete -k install
	k.awaitGone(t, "install")
	k.run(t, daemonPod(t, "remove"))
	k.await(t, "remove", "the node is clean", ready)
	if out := k.said("remove"); !strings.Contains(out, "pods live: containerd is not restarted") {
		t.Errorf("the DaemonSet's pod said %s", out)
	}
	if _, err := os.Stat(restartWanted); err == nil {
		t.Error("containerd was to be restarted while pods live")
	}
	if files := installed(t); slices.Contains(files, installedDir+"/bin/rktctl") || slices.Contains(files, configDir+"/rkt.toml") {
		t.Errorf("installed are still %q", files)
	}
	if out := k.exec(t, "user", "d", "echo here"); out != "here" {
		t.Errorf("the pod says %q", out)
	}
	k.exec(t, "user", "c", "touch /tmp/stop")
	after := k.await(t, "user", "it has a new container", func(s corev1.PodStatus) bool {
		return of(s, "c").RestartCount > 0 && of(s, "c").State.Running != nil
	})
	if is, was := of(after, "d"), of(before, "d"); is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("the other container was %+v and is %+v", was, is)
	}

	for _, name := range []string{"user", "remove"} {
		k.take(t, name)
		k.awaitGone(t, name)
	}
	wait.ObserveWithin(t, patience, "nothing of the installation is left", func() (bool, string) {
		left := slices.DeleteFunc(installed(t), func(path string) bool { return path == own })
		return len(left) == 0, strings.Join(left, " ")
	})
}

// said returns the log of the pod of a DaemonSet.
func (k *kubelet) said(name string) string {
	b, err := k.get("/containerLogs/containerd-shim-rkt/" + name + "-node/node")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func startDeployNode(t *testing.T) *node.Node {
	t.Helper()
	o := nodeOptions(t)
	o.Dir, o.DropIns, o.Shims = deployNode, configDir, []string{filepath.Join(installedDir, "bin")}
	o.Images = append(o.Images, deployNodeImage(t, daemonPod(t, "install")))
	return start(t, o)
}
