package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// pod makes a static pod of some containers.
func pod(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: containers, TerminationGracePeriodSeconds: new(int64(5))},
	}
}

// shell is a container that runs a script.
func shell(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: image.BusyboxName, ImagePullPolicy: corev1.PullNever,
		Command: []string{"/bin/sh", "-c", script},
	}
}

func run(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

// probe returns a probe that runs every second, and whose first result counts.
func probe(h corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 3, TimeoutSeconds: 10}
}

func byExec(command ...string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}
}

func byHTTP(port int) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}}
}

func memory(limit string) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit), corev1.ResourceCPU: resource.MustParse("500m")}
	return corev1.ResourceRequirements{Limits: l, Requests: l}
}

// volume gives the pod a directory that every container has at /data.
func volume(p *corev1.Pod) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	mount := corev1.VolumeMount{Name: "data", MountPath: "/data"}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
		}
	}
	return p
}

// host mounts a directory of the node at /host in every container.
func host(p *corev1.Pod, path string) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}})
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = append(p.Spec.Containers[i].VolumeMounts, corev1.VolumeMount{Name: "host", MountPath: "/host"})
	}
	return p
}

// of returns a container's status.
func of(s corev1.PodStatus, name string) corev1.ContainerStatus {
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// ready reports whether the pod is ready.
func ready(s corev1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
