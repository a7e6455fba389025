package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
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
	cmd := verb("attach", "attach POD [--end-input]", "connect to the streams of an app, or name the command that does", takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	end := endInputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of, name, err := localApp(cmd, e, args[0])
		if err != nil {
			return err
		}
		if of != nil {
			return attach(cmd.Context(), e, of, name, *end)
		}
		return refuse(cmd, e, args[0], func(c client) string {
			return "containerd's client has its streams, and a second reader would take some of their text away: use " + c.attach
		})
	}
	return cmd
}

func newLogs(e *Env) *cobra.Command {
	cmd := verb("logs", "logs POD [--follow]", "print the output of an app, or name the command that does", takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	follow := followFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of, name, err := localApp(cmd, e, args[0])
		if err != nil {
			return err
		}
		if of != nil {
			return printLog(cmd.Context(), e.Stdout, of, name, *follow)
		}
		return refuse(cmd, e, args[0], func(c client) string {
			return "containerd's client has its output, and a second reader would take some of its text away: use " + c.logs
		})
	}
	return cmd
}

// refuse names the client's command for the app that a word names.
func refuse(cmd *cobra.Command, e *Env, word string, words func(client) string) error {
	_, p, a, err := find(e, word)
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

// localApp returns the local pod and the name of its app that a word names. It returns nil if the word
// names a pod of containerd's. When a local pod ends, its server removes all files that are not in
// `local/`: first the record that says whose pod it is, and in the end those that have the names of its apps.
func localApp(cmd *cobra.Command, e *Env, word string) (*local.Pod, string, error) {
	_, p, a, err := find(e, word)
	uuid := word
	switch {
	case errdefs.IsNotFound(err): // it may have ended
	case err != nil || p.Daemon != "":
		return nil, "", err
	default:
		uuid = p.UUID
	}
	of, localErr := localPod(e, uuid)
	switch {
	case errdefs.IsNotFound(localErr):
		return nil, "", err
	case localErr != nil:
		return nil, "", localErr
	case a != nil:
		return of, a.ID, nil
	}
	names, err := of.Names()
	switch {
	case err != nil:
		return nil, "", err
	case len(names) == 0:
		return nil, "", fmt.Errorf("pod %s has no app", of.UUID())
	case len(names) > 1:
		return nil, "", errUsage(cmd, "pod %s has %d apps, %s: use rktctl app %s --app NAME", of.UUID(), len(names), strings.Join(names, ", "), cmd.Name())
	}
	return of, names[0], nil
}

// isLocal reports whether a pod is one without containerd.
func isLocal(p *view.Pod) bool { return p.Daemon == "" && p.Namespace == local.Namespace }

// ofContainerd returns an error for a pod that no containerd has made.
func ofContainerd(p *view.Pod) error {
	if isLocal(p) {
		return fmt.Errorf("pod %s is not a pod of a containerd: rktctl app stop and rktctl app rm change it", p.UUID)
	}
	if p.Daemon == "" {
		return fmt.Errorf("pod %s is not a pod of a containerd", p.UUID)
	}
	return nil
}
