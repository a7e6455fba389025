package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
)

// The kubelet's driver cgroupfs makes a pod's cgroup in every hierarchy of version 1 but that of the devices.
func TestAVMIsInItsPodsCgroupAlsoWithoutOneOfTheDevices(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		pod, hierarchies := "/"+c.daemon.Namespace()+"-pod", podHierarchies(t)
		makePodCgroup(t, pod)
		task := c.running(t, []string{"sleep", "1000"}, oci.WithCgroup(pod+"/app"),
			oci.WithAnnotations(map[string]string{"io.kubernetes.cri.container-type": "sandbox"}))
		_, record := c.pod(t, task.ID())
		l := &life{supervisor: record.Supervisor.PID}
		members := map[string]int{
			"QEMU": l.child(t, "qemu-system"), "virtiofsd": l.child(t, "virtiofsd"), "the proxy": int(task.Pid()),
		}
		for name, pid := range members {
			in := cgroupsOf(t, pid)
			for h := range hierarchies {
				if path := in[h]; path != pod && !strings.HasPrefix(path, pod+"/") {
					t.Errorf("%s is in the cgroup %s of the hierarchy %q", name, path, h)
				}
			}
		}
		c.killAndDrop(t, task)
	})
}

// podHierarchies returns the directories of the hierarchies in which the kubelet makes cgroups of pods, by controllers as
// cgroupsOf names them.
func podHierarchies(t *testing.T) map[string]string {
	t.Helper()
	if unified() {
		return map[string]string{"": "/sys/fs/cgroup"}
	}
	all := map[string]string{}
	for name := range cgroupsOf(t, os.Getpid()) {
		dir := filepath.Join("/sys/fs/cgroup", name)
		if _, err := os.Stat(filepath.Join(dir, "tasks")); err == nil && name != "" && name != "devices" {
			all[name] = dir
		}
	}
	return all
}
