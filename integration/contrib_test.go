package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	crinode "github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
)

// contribDir has the files that the repository ships for other programs.
const contribDir = "../contrib"

// dropIn is a file of contrib/containerd, with the handler that CRI must have because of it.
type dropIn struct {
	file, handler, runtime, sandboxer string
}

var newDropIns = []dropIn{
	{"rkt.toml", "rkt", "io.containerd.rkt.v1", "podsandbox"},
	{"rkt-sandbox.toml", "rkt-sandbox", "io.containerd.rkt.v1", "shim"},
	{"rkt-oci.toml", "rkt-oci", "io.containerd.rkt-oci.v1", "podsandbox"},
	{"rkt-nspawn.toml", "rkt-nspawn", "io.containerd.rkt-nspawn.v1", "podsandbox"},
	{"rkt-kvm.toml", "rkt-kvm", kvmRuntime, "shim"},
}

// kvmRuntime is that of a stage1 that `make build` does not build.
const kvmRuntime = "io.containerd.rkt-kvm.v1"

var oldDropIns = []dropIn{
	{"rkt.toml", "rkt", "io.containerd.rkt.v1", ""},
	{"rkt-oci.toml", "rkt-oci", "io.containerd.rkt-oci.v1", ""},
	{"rkt-nspawn.toml", "rkt-nspawn", "io.containerd.rkt-nspawn.v1", ""},
	{"rkt-kvm.toml", "rkt-kvm", kvmRuntime, ""},
}

// install copies the file to the directory from which the node of that name imports it.
func (d dropIn) install(t *testing.T, node string) {
	t.Helper()
	dir := filepath.Join(suite.dir, node, "conf.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, d.file), read(t, filepath.Join(contribDir, "containerd/2.x", d.file)))
}

// needOurs skips the test if only runc's shim is there.
func needOurs(t *testing.T) {
	t.Helper()
	if *runtimesFlag == "runc" {
		t.Skip("needs the shim, and only runc's is under test")
	}
}

// filesIn lists a directory of contrib/.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(contribDir, dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// handler is CRI's description of a handler in the verbose status.
type handler struct {
	Type                 string         `json:"runtimeType"`
	Sandboxer            string         `json:"sandboxer"`
	PodAnnotations       []string       `json:"PodAnnotations"`
	PodAnnotationsNew    []string       `json:"podAnnotations"`
	ContainerAnnotations []string       `json:"ContainerAnnotations"`
	Options              map[string]any `json:"options"`
}

// expect compares a handler of CRI's with the one that the drop-in should make.
func (d dropIn) expect(t *testing.T, s *runtimeapi.StatusResponse) {
	t.Helper()
	var config struct {
		Containerd struct {
			Runtimes map[string]handler `json:"runtimes"`
		} `json:"containerd"`
		LogLine    int `json:"maxContainerLogLineSize"`
		LogLineOld int `json:"maxContainerLogSize"` // before 2.0
	}
	if err := json.Unmarshal([]byte(s.GetInfo()["config"]), &config); err != nil {
		t.Fatalf("%v in %s", err, s.GetInfo()["config"])
	}
	h, ok := config.Containerd.Runtimes[d.handler]
	if !ok {
		t.Fatalf("there is no handler %s in %s", d.handler, s.GetInfo()["config"])
	}
	if h.Type != d.runtime || h.Sandboxer != d.sandboxer || len(h.Options) > 0 {
		t.Errorf("handler %s is %+v: requirements.md#O3 wants no options", d.handler, h)
	}
	for _, key := range []string{"io.containerd.rkt.v1/*", "io.containerd.rkt.v1.*"} {
		if !slices.Contains(append(h.PodAnnotations, h.PodAnnotationsNew...), key) {
			t.Errorf("handler %s does not hand on %s: %+v", d.handler, key, h)
		}
	}
	if _, ok := config.Containerd.Runtimes["runc"]; !ok {
		t.Error("the handler runc is not there any more")
	}
	if n := max(config.LogLine, config.LogLineOld); n != 4242 {
		t.Errorf("the operator's own setting is %d now", n)
	}
}

func TestEveryDropInMakesAHandlerOfContainerd2(t *testing.T) {
	needOurs(t)
	if got := filesIn(t, "containerd/2.x"); len(got) != len(newDropIns) {
		t.Fatalf("there are %q", got)
	}
	for _, d := range newDropIns {
		t.Run(d.handler, func(t *testing.T) {
			d.install(t, "cri-"+d.handler)
			cri := criOf(t, releases[0], "cri-"+d.handler, crinode.WithDropIns("DIR/conf.d")).runtime
			s, err := cri.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
			if err != nil {
				t.Fatal(err)
			}
			d.expect(t, s)
			if d.runtime == kvmRuntime {
				return // cri's TestPodsOfMachines runs pods of it
			}
			i := slices.IndexFunc(s.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == d.handler })
			if i < 0 {
				t.Fatalf("CRI's status has the handlers %v", s.GetRuntimeHandlers())
			}
			// The output of `-info` of the drop-in's runtime.
			if f := s.GetRuntimeHandlers()[i].GetFeatures(); !f.GetRecursiveReadOnlyMounts() || f.GetUserNamespaces() != (d.runtime == "io.containerd.rkt.v1") {
				t.Errorf("its features are %v", f)
			}
			if d.sandboxer == "shim" {
				runsAPod(t, cri, d.handler)
			}
		})
	}
}

// runsAPod makes a pod that needs neither image nor network.
func runsAPod(t *testing.T, cri runtimeapi.RuntimeServiceClient, handler string) {
	t.Helper()
	pod, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{RuntimeHandler: handler, Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "contrib"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}})
	if err != nil {
		t.Fatalf("run a pod: %v", err)
	}
	if _, err := cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()}); err != nil {
		t.Error(err)
	}
	if _, err := cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()}); err != nil {
		t.Error(err)
	}
}

// The containerd 1.7 that the suite builds has no CRI; it reads the same form.
func TestEveryDropInMakesAHandlerOfContainerd1(t *testing.T) {
	if got := filesIn(t, "containerd/1.x"); len(got) != len(oldDropIns) {
		t.Fatalf("there are %q", got)
	}
	old, err := findRelease("1.6")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range oldDropIns {
		t.Run(d.handler, func(t *testing.T) {
			text := read(t, filepath.Join(contribDir, "containerd/1.x", d.file))
			cri := criOf(t, old, "cri1-"+d.handler, oldCRINode+text).runtime
			s, err := cri.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
			if err != nil {
				t.Fatal(err)
			}
			d.expect(t, s)
		})
	}
}

// All drop-ins can be installed together.
func TestTheDropInsDoNotMeet(t *testing.T) {
	for _, d := range newDropIns {
		d.install(t, "cri-all")
	}
	cri := criOf(t, releases[0], "cri-all", crinode.WithDropIns("DIR/conf.d")).runtime
	s, err := cri.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range newDropIns {
		d.expect(t, s)
	}
}

// runtimeClass has the fields of Kubernetes' RuntimeClass that this test reads.
type runtimeClass struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Handler  string `json:"handler"`
	Overhead struct {
		PodFixed map[string]string `json:"podFixed"`
	} `json:"overhead"`
}

// documents reads the YAML documents of a file, and fails on unknown fields.
func documents[T any](t *testing.T, path string) []T {
	t.Helper()
	var all []T
	for _, text := range strings.Split(read(t, path), "\n---\n") {
		var v T
		if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, v)
	}
	return all
}

func TestRuntimeClassesHaveHandlersAndTheOverheadThatTheyDerive(t *testing.T) {
	path := filepath.Join(contribDir, "kubernetes/runtimeclasses.yaml")
	table := regexp.MustCompile(`(?m)^#   (\S+) +([\d.]+) MB +([\d.]+) MB +([\d.]+) MB +(\d+)Mi$`)
	derived := map[string]string{}
	for _, row := range table.FindAllStringSubmatch(read(t, path), -1) {
		var pod, further, sum, overhead float64
		if _, err := fmt.Sscan(strings.Join(row[2:], " "), &pod, &further, &sum, &overhead); err != nil {
			t.Fatal(err)
		}
		if ten := pod + 10*further; math.Abs(ten-sum) > 0.06 || overhead != math.Ceil(ten/1.048576) {
			t.Errorf("%s: a pod with ten containers is %.2f MB, the table says %v MB and %vMi", row[1], ten, sum, overhead)
		}
		derived[row[1]] = row[5] + "Mi"
	}
	// A machine's own memory, by default, and the processes of the host.
	derived["rkt-kvm"] = fmt.Sprint(1024+128, "Mi")
	classes := append(documents[runtimeClass](t, path), documents[runtimeClass](t, filepath.Join(contribDir, "kubernetes/runtimeclass-kvm.yaml"))...)
	for i, d := range newDropIns {
		if len(classes) != len(newDropIns) {
			t.Fatalf("there are %d classes", len(classes))
		}
		c := classes[i]
		if c.APIVersion != "node.k8s.io/v1" || c.Kind != "RuntimeClass" || c.Handler != d.handler || c.Metadata.Name != d.handler {
			t.Errorf("%+v is not the class of %s", c, d.handler)
		}
		if got := c.Overhead.PodFixed["memory"]; got == "" || got != derived[d.handler] {
			t.Errorf("the overhead of %s is %q, measured was %q", d.handler, got, derived[d.handler])
		}
	}
}

func TestThePodsOfTheExamplesNameRuntimeClassesThatAreThere(t *testing.T) {
	type pod struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			RuntimeClassName string           `json:"runtimeClassName"`
			Containers       []map[string]any `json:"containers"`
		} `json:"spec"`
	}
	annotated := 0
	for _, p := range documents[pod](t, filepath.Join(contribDir, "kubernetes/pods.yaml")) {
		known := slices.ContainsFunc(newDropIns, func(d dropIn) bool { return d.handler == p.Spec.RuntimeClassName })
		if p.APIVersion != "v1" || p.Kind != "Pod" || !known || len(p.Spec.Containers) == 0 {
			t.Errorf("%+v", p)
		}
		for key := range p.Metadata.Annotations {
			if annotated++; key != stage1Annotation {
				t.Errorf("annotation %s", key)
			}
		}
	}
	if annotated != 1 {
		t.Errorf("%d pods ask for a stage1", annotated)
	}
}

func TestTheRuntimesOfDockersExampleAreProgramsThatAreBuilt(t *testing.T) {
	needOurs(t)
	var config struct {
		Runtimes map[string]struct {
			Type    string         `json:"runtimeType"`
			Options map[string]any `json:"options"`
		} `json:"runtimes"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(contribDir, "docker/daemon.json"))), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Runtimes) != 2 {
		t.Errorf("%+v", config)
	}
	for name, r := range config.Runtimes {
		program := (&column{runtime: r.Type}).shimProgram()
		if _, err := os.Stat(filepath.Join(suite.shims, program)); err != nil || len(r.Options) > 0 {
			t.Errorf("runtime %s: %v, options %v", name, err, r.Options)
		}
	}
}
