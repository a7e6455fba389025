package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// render builds a directory as `kubectl apply -k` does, and decodes the objects as the API server
// does if it is to refuse unknown fields.
func render(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, nodev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for _, r := range objects.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", dir, err, text)
		}
		all = append(all, object)
	}
	return all
}

func TestTheManifestsOfAClusterAreValid(t *testing.T) {
	version, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../contrib/deploy/node")
	if err != nil {
		t.Fatal(err)
	}
	for verb, classes := range map[string]int{"install": 4, "remove": 0} {
		t.Run(verb, func(t *testing.T) {
			var namespace *corev1.Namespace
			var set *appsv1.DaemonSet
			for _, object := range render(t, filepath.Join("../../contrib/deploy", verb)) {
				switch o := object.(type) {
				case *corev1.Namespace:
					namespace = o
				case *appsv1.DaemonSet:
					set = o
				case *nodev1.RuntimeClass:
					classes--
				default:
					t.Errorf("there is a %T", o)
				}
			}
			if namespace == nil || set == nil || classes != 0 {
				t.Fatalf("namespace %v, DaemonSet %v, %d RuntimeClasses are missing", namespace, set, classes)
			}
			if set.Namespace != namespace.Name || namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
				t.Errorf("the DaemonSet is in %s, and the namespace is %+v", set.Namespace, namespace)
			}
			selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
			if err != nil || selector.Empty() || !selector.Matches(labels.Set(set.Spec.Template.Labels)) {
				t.Errorf("%v does not select the pods with %v: %v", selector, set.Spec.Template.Labels, err)
			}
			pod := set.Spec.Template.Spec
			if len(pod.Containers) != 1 || !pod.HostPID {
				t.Fatalf("the pod is %+v", pod)
			}
			c := pod.Containers[0]
			if c.Image != "containerd-shim-rkt-node:"+strings.TrimSpace(string(version)) {
				t.Errorf("the image is %s, the version %s", c.Image, version)
			}
			if len(c.Args) != 1 || c.Args[0] != verb || !strings.Contains(string(script), "\n\t"+verb+") "+verb+"_node ;;\n") {
				t.Errorf("the container runs %q, which the script does not know", c.Args)
			}
			if done := c.ReadinessProbe.Exec.Command[2]; !strings.Contains(string(script), "${DONE:-"+done+"}") {
				t.Errorf("the script does not make %s", done)
			}
			if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != pod.Volumes[0].Name || pod.Volumes[0].HostPath.Path != "/" ||
				!strings.Contains(string(script), "${HOST:-"+c.VolumeMounts[0].MountPath+"}") {
				t.Errorf("the script does not find the node's root: %+v, %+v", c.VolumeMounts, pod.Volumes)
			}
		})
	}
}

// setOf renders a directory and returns its DaemonSet.
func setOf(t *testing.T, dir string) *appsv1.DaemonSet {
	t.Helper()
	for _, object := range render(t, dir) {
		if set, ok := object.(*appsv1.DaemonSet); ok {
			return set
		}
	}
	t.Fatalf("%s has no DaemonSet", dir)
	return nil
}

// All pods of a new DaemonSet start at once, and an update changes one after the other.
func TestAFirstInstallationIsAnUpdateOfADaemonSetWhosePodsWait(t *testing.T) {
	first, install := setOf(t, "../../contrib/deploy/first"), setOf(t, "../../contrib/deploy/install")
	args := first.Spec.Template.Spec.Containers[0].Args
	if len(args) != 1 || args[0] != "wait" {
		t.Errorf("the first pods run %q", args)
	}
	first.Spec.Template.Spec.Containers[0].Args = install.Spec.Template.Spec.Containers[0].Args
	if !reflect.DeepEqual(first, install) {
		t.Error("the DaemonSets differ in more than their arguments")
	}
	if u := install.Spec.UpdateStrategy; u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the update changes nodes so: %+v", u)
	}
}

// The image is made from files that a release has.
func TestTheImageOfTheDaemonSetsIsMadeFromATarball(t *testing.T) {
	text, err := os.ReadFile("../../contrib/deploy/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{name: name, version: "${VERSION}", arch: "${TARGETARCH}"}
	for _, line := range []string{"ARG VERSION", "ADD " + r.path("dist", ".tar.gz") + " /payload/", "COPY contrib/deploy/node /node"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the Containerfile has no line %q", line)
		}
	}
	readme, err := os.ReadFile("../../contrib/deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	builds := regexp.MustCompile(`make release VERSION=v(\S+)\n(?:#   )?docker build --build-arg VERSION=(\S+) -f contrib/deploy/Containerfile -t \S+:v(\S+) \.`)
	for name, text := range map[string]string{"README.md": string(readme), "Containerfile": string(text)} {
		if m := builds.FindStringSubmatch(text); m == nil || m[1] != m[2] || m[1] != m[3] {
			t.Errorf("%s does not build the image of the version that it releases: %q", name, m)
		}
	}
}
