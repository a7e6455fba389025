package cri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
)

// pauseUser is the user of the pause image, and of the process that holds a pod's namespaces if
// there is no pause image.
const pauseUser = 65535

// trespasser is a container that attacks the first process of its pod.
type trespasser struct {
	name      string
	user      int64
	add, drop []string // capabilities
}

// attackedPod is a pod whose containers see its first process.
type attackedPod struct {
	name       string
	namespaces *runtimeapi.NamespaceOption
	containers []trespasser
}

func attackedPods() []attackedPod {
	bare := trespasser{"root without capabilities", 0, nil, []string{"ALL"}}
	usual := trespasser{"root with the default capabilities", 0, nil, nil}
	tracer := trespasser{"root with SYS_PTRACE", 0, []string{"SYS_PTRACE"}, nil}
	same := trespasser{"the user of a pause container", pauseUser, nil, []string{"ALL"}}
	const shared = runtimeapi.NamespaceMode_POD
	return []attackedPod{
		{"shareProcessNamespace", &runtimeapi.NamespaceOption{Pid: shared}, []trespasser{bare, usual, tracer, same}},
		{"hostPID", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}, []trespasser{bare, tracer, same}},
		{"hostNetwork", &runtimeapi.NamespaceOption{Pid: shared, Network: runtimeapi.NamespaceMode_NODE}, []trespasser{bare}},
		{"hostUsers: false", &runtimeapi.NamespaceOption{Pid: shared, UsernsOptions: userNamespaceOption()}, []trespasser{bare, tracer, same}},
	}
}

// TestWhatAPauseContainerRefusesTheHolderRefuses compares the access that containers have to
// the first process of their pod: with a pause container of runc's, and with a process of ours
// that holds the pod's namespaces without an image.
func TestWhatAPauseContainerRefusesTheHolderRefuses(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	holders := []node.Handler{
		{Name: "native", Runtime: nativeRuntime, Sandboxer: "shim"},
		{Name: "oci", Runtime: ociRuntime, Sandboxer: "shim"},
		{Name: "oci-current", Runtime: currentRuntime, Sandboxer: "shim"},
		{Name: "nspawn", Runtime: nspawnRuntime, Sandboxer: "shim"},
	}
	// Debian's runc does not support user namespaces with id-mapped mounts.
	pause := &column{name: "holder", number: len(suiteColumns), beside: holders, handler: node.Handler{
		Name: "pause", Runtime: "io.containerd.runc.v2", Sandboxer: "podsandbox",
		Options: fmt.Sprintf("    BinaryName = %q\n", currentRunc),
	}}
	pause.open(t)
	for _, kind := range attackedPods() {
		t.Run(kind.name, func(t *testing.T) {
			var allowed []map[string]bool
			t.Run("pause", func(t *testing.T) {
				allowed = pause.attack(t, kind)
				if last := len(allowed) - 1; !allowed[last]["read /status"] {
					t.Errorf("of a pause container there is not even its status: has it been tried?")
				}
			})
			for _, h := range holders {
				c := *pause
				c.handler = h
				t.Run(h.Name, func(t *testing.T) {
					for i, found := range c.attack(t, kind) {
						compareTrespass(t, kind.containers[i].name, found, allowed[i])
					}
					if kind.name == "shareProcessNamespace" {
						c.expectHolderLives(t)
					}
				})
			}
		})
	}
}

// compareTrespass fails the test for each access that a container has to a holder and not to a
// pause container. The holder is undumpable and a pause container is not, so accesses that the
// kernel allows root on every undumpable process are excused.
func compareTrespass(t *testing.T, who string, holder, pause map[string]bool) {
	t.Helper()
	const undumpable = "undumpable "
	for what := range holder {
		if !pause[what] && !holder[undumpable+what] && !strings.HasPrefix(what, undumpable) {
			t.Errorf("%s may with the holder, and may not with a pause container: %s", who, what)
		}
	}
}

// attack returns the accesses that the containers have to the first process of their pod.
func (c *column) attack(t *testing.T, kind attackedPod) (found []map[string]bool) {
	t.Helper()
	t.Cleanup(func() { c.cleanUp(t) })
	mapped := kind.namespaces.GetUsernsOptions() != nil
	if mapped && !c.features(t).GetUserNamespaces() {
		t.Skip("the runtime does not declare user namespaces with id-mapped mounts")
	}
	p := c.pod(t, withNamespaces(kind.namespaces), func(config *runtimeapi.PodSandboxConfig) {
		if kind.namespaces.GetNetwork() == runtimeapi.NamespaceMode_NODE {
			config.Hostname = ""
		}
	})
	pid := 1
	if kind.namespaces.GetPid() == runtimeapi.NamespaceMode_NODE {
		pid = p.pid()
	}
	for _, a := range kind.containers {
		may := p.trespass(a, pid)
		found = append(found, may)
		if slices.Contains(a.add, "SYS_PTRACE") && !mapped && !may["trace /"] {
			t.Errorf("%s does not trace process %d: has it been tried?", a.name, pid)
		}
	}
	return found
}

// trespass returns the accesses of one container.
func (p *pod) trespass(a trespasser, pid int) map[string]bool {
	p.t.Helper()
	p.serial++
	may := map[string]bool{}
	for _, what := range lines(p.output("trespasser-"+itoa(p.serial), []string{"/bin/testprog", "trespass", itoa(pid)}, a.container)) {
		may[what] = true
	}
	return may
}

// container edits the configuration of a container into that of the attacker.
func (a trespasser) container(config *runtimeapi.ContainerConfig) {
	capabilities(a.add, a.drop)(config)
	s := config.Linux.SecurityContext
	s.RunAsUser, s.RunAsGroup, s.NoNewPrivs = id(a.user), id(a.user), true
	s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

// expectHolderLives checks that no container of a pod can end the process that holds its
// namespaces, not even as the same user, who can end a pause container.
func (c *column) expectHolderLives(t *testing.T) {
	t.Helper()
	p := c.pod(t, withNamespaces(&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}))
	same := trespasser{user: pauseUser, drop: []string{"ALL"}}
	p.output("killer", sh("kill -TERM 1; kill -KILL 1; sleep 0.1; kill -0 1"), same.container)
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
}
