package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// client names the commands of the client that has made a container. Only the client may read
// the container's streams and delete it, so rktctl names these commands and does not do
// their work.
type client struct {
	attach, logs, stop, remove string
}

// Namespaces of containerd's that belong to one client.
const (
	kubernetes = "k8s.io"
	docker     = "moby"
)

// defaultDaemon is the address that ctr and crictl use if none is given.
const defaultDaemon = "/run/containerd/containerd.sock"

// Annotations of CRI's containers.
const (
	criNamespace = "io.kubernetes.cri.sandbox-namespace"
	criPod       = "io.kubernetes.cri.sandbox-name"
	criUID       = "io.kubernetes.cri.sandbox-uid"
	criContainer = "io.kubernetes.cri.container-name"
)

// clientOf returns the commands for an app, or, if a is nil, for a pod without apps.
func clientOf(p *view.Pod, a *view.App) client {
	id := p.Sandbox
	if a != nil {
		id = a.ID
	}
	ctr := "ctr"
	if p.Daemon != defaultDaemon {
		ctr += " --address " + p.Daemon
	}
	ctr += " --namespace " + p.Namespace
	switch p.Namespace {
	case kubernetes:
		c := client{attach: "crictl attach " + id, logs: "crictl logs " + id, stop: "crictl stopp " + p.Sandbox, remove: "crictl rmp " + p.Sandbox}
		if a == nil {
			return c
		}
		notes := annotations(a.Bundle)
		if notes[criPod] != "" {
			pod := notes[criPod] + " --namespace " + notes[criNamespace]
			c.stop, c.remove = "kubectl delete pod "+pod, "kubectl delete pod "+pod
		}
		if notes[criContainer] != "" && notes[criUID] != "" {
			c.logs += ", or the files in " + filepath.Join("/var/log/pods", fmt.Sprintf("%s_%s_%s", notes[criNamespace], notes[criPod], notes[criUID]), notes[criContainer])
		}
		return c
	case docker:
		return client{attach: "docker attach " + id, logs: "docker logs " + id, stop: "docker stop " + id, remove: "docker rm " + id}
	}
	nerdctl := "nerdctl --namespace " + p.Namespace
	return client{
		attach: ctr + " task attach " + id,
		logs:   nerdctl + " logs " + id + ", if nerdctl has made it; ctr keeps no output",
		stop:   ctr + " task kill " + id,
		remove: ctr + " task delete --force " + id + ", and " + ctr + " container delete " + id,
	}
}

// annotations returns the annotations of a container; none if they cannot be read.
func annotations(bundle string) map[string]string {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if text, err := os.ReadFile(filepath.Join(bundle, "config.json")); err == nil {
		_ = json.Unmarshal(text, &spec)
	}
	return spec.Annotations
}

func newAttach(e *Env) *cobra.Command {
	return refusing(e, "attach", "name the command that attaches to the streams of an app", func(c client) string {
		return "containerd's client has its streams, and a second reader would take some of their text away: use " + c.attach
	})
}

func newLogs(e *Env) *cobra.Command {
	return refusing(e, "logs", "name the command that shows the output of an app", func(c client) string {
		return "containerd's client has its output, and a second reader would take some of its text away: use " + c.logs
	})
}

// refusing returns a verb that names the client's command.
func refusing(e *Env, name, summary string, words func(client) string) *cobra.Command {
	cmd := verb(name, name+" POD", summary, takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, p, a, err := find(e, args[0])
		if err != nil {
			return err
		}
		if err := ofContainerd(p); err != nil {
			return err
		}
		if a, err = oneApp(cmd, p, a); err != nil {
			return err
		}
		return fmt.Errorf("app %s: %s", a.ID, words(clientOf(p, a)))
	}
	return cmd
}

// ofContainerd returns an error for a pod that no containerd has made.
func ofContainerd(p *view.Pod) error {
	if p.Daemon == "" && p.Namespace == local.Namespace {
		return fmt.Errorf("pod %s is not a pod of a containerd: rktctl app stop and rktctl app rm change it", p.UUID)
	}
	if p.Daemon == "" {
		return fmt.Errorf("pod %s is not a pod of a containerd", p.UUID)
	}
	return nil
}
