package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// patience is the time limit of a test for the kubelet, which reads its files every second and
// waits for ten seconds when a container has failed.
var patience = 4 * wait.Patience

// kubelet is a running kubelet.
type kubelet struct {
	node *node.Node
	dir  string
	cmd  *exec.Cmd
	log  *os.File
}

// configuration is the kubelet's. Eviction when the machine's disk is full, and everything that
// needs an API server or iptables, is disabled.
const configuration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: DIR/manifests
podLogsDir: DIR/logs
containerRuntimeEndpoint: ENDPOINT
address: 127.0.0.1
port: 10250
healthzPort: 10248
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /
failCgroupV1: false
failSwapOn: false
fileCheckFrequency: 1s
syncFrequency: 1s
volumeStatsAggPeriod: 5s
enableControllerAttachDetach: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
registerNode: false
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
resolvConf: DIR/resolv.conf
`

// startKubelet starts a kubelet on a node.
func startKubelet(t *testing.T, n *node.Node) *kubelet {
	t.Helper()
	k := &kubelet{node: n, dir: filepath.Join(n.Dir(), "kubelet")}
	for _, sub := range []string{"manifests", "logs", "root", "host"} {
		must(t, os.MkdirAll(filepath.Join(k.dir, sub), 0o755))
	}
	text := strings.NewReplacer("DIR", k.dir, "ENDPOINT", n.Endpoint()).Replace(configuration)
	must(t, os.WriteFile(k.file("config.yaml"), []byte(text), 0o644))
	must(t, os.WriteFile(k.file("resolv.conf"), []byte("nameserver 192.0.2.53\n"), 0o644))
	var err error
	k.log, err = os.Create(k.file("log"))
	must(t, err)
	k.cmd = exec.Command(filepath.Join(programsDir, "kubelet"), "--config="+k.file("config.yaml"),
		"--root-dir="+k.file("root"), "--cert-dir="+k.file("certificates"), "--hostname-override=node", "--v=3")
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, k.cmd.Start())
	t.Cleanup(func() { k.stop(t) })
	if !wait.ObserveWithin(t, patience, "the kubelet serves", func() (bool, string) {
		b, err := k.get("/healthz")
		return err == nil && string(b) == "ok", fmt.Sprintf("%s %v", b, err)
	}) {
		t.FailNow()
	}
	return k
}

func (k *kubelet) file(name string) string { return filepath.Join(k.dir, name) }

func (k *kubelet) stop(t *testing.T) {
	t.Helper()
	if t.Failed() {
		b, _ := os.ReadFile(k.file("log")) // best effort
		const shown = 6000
		t.Logf("the kubelet's log ends with:\n%s", b[max(0, len(b)-shown):])
		t.Logf("containerd's log ends with:\n%s", k.node.LogTail(25))
	}
	_ = k.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = k.cmd.Wait()
	k.log.Close()
}

// get reads from the kubelet's server, and fails for any status but 200.
func (k *kubelet) get(path string) ([]byte, error) { return k.request(http.MethodGet, path) }

func (k *kubelet) request(method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:10250"+path, nil)
	if err != nil {
		return nil, err
	}
	// The kubelet has made its certificate itself.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, b)
	}
	return b, err
}

// pods returns the pods that the kubelet is to run, by their names.
func (k *kubelet) pods() (map[string]corev1.Pod, error) { return k.list("/pods") }

// list reads pods from the kubelet's server.
func (k *kubelet) list(path string) (map[string]corev1.Pod, error) {
	b, err := k.get(path)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[strings.TrimSuffix(p.Name, "-node")] = p
	}
	return pods, nil
}

// run gives the kubelet a pod.
func (k *kubelet) run(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	b, err := json.Marshal(pod)
	must(t, err)
	// The kubelet reads any file that it finds, so the complete file is renamed into place.
	whole := k.file(pod.Name + ".json")
	must(t, os.WriteFile(whole, b, 0o644))
	must(t, os.Rename(whole, k.manifest(pod.Name)))
}

// take removes a pod from the kubelet.
func (k *kubelet) take(t *testing.T, name string) {
	t.Helper()
	must(t, os.Remove(k.manifest(name)))
}

func (k *kubelet) manifest(name string) string {
	return filepath.Join(k.dir, "manifests", name+".json")
}

// await waits until check accepts a pod's status.
func (k *kubelet) await(t *testing.T, name, what string, check func(corev1.PodStatus) bool) corev1.PodStatus {
	t.Helper()
	var status corev1.PodStatus
	held := wait.ObserveWithin(t, patience, name+": "+what, func() (bool, string) {
		pods, err := k.pods()
		if err != nil {
			return false, err.Error()
		}
		p, ok := pods[name]
		status = p.Status
		b, _ := json.Marshal(status)
		return ok && check(status), string(b)
	})
	if !held {
		t.FailNow()
	}
	return status
}

// awaitGone waits until the kubelet neither is to run a pod nor runs it.
func (k *kubelet) awaitGone(t *testing.T, name string) {
	t.Helper()
	wait.ObserveWithin(t, patience, name+" is gone", func() (bool, string) {
		for _, path := range []string{"/pods", "/runningpods/"} {
			pods, err := k.list(path)
			if err != nil {
				return false, err.Error()
			}
			if p, there := pods[name]; there {
				return false, fmt.Sprintf("%s: %+v", path, p.Status)
			}
		}
		return true, ""
	})
}

// logs returns the output of a container.
func (k *kubelet) logs(name, container string) string {
	b, err := k.get("/containerLogs/default/" + name + "-node/" + container)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// exec runs a command in a container and returns its output.
func (k *kubelet) exec(t *testing.T, name, container, command string) string {
	t.Helper()
	out, err := k.tryExec(name, container, command)
	if err != nil {
		t.Errorf("run %s in %s: %v", command, name, err)
	}
	return out
}

func (k *kubelet) tryExec(name, container, command string) (string, error) {
	b, err := k.request(http.MethodPost, "/run/default/"+name+"-node/"+container+"?cmd="+strings.ReplaceAll(command, " ", "+"))
	return string(bytes.TrimSpace(b)), err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
