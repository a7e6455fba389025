package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

const stage1Annotation = "io.containerd.rkt.v1/stage1"

// node is a column whose shims read a configuration of their own.
type node struct {
	*column
	t    *testing.T
	file string
}

// eachNode runs a case for the runtime io.containerd.rkt.v1, under every containerd.
func eachNode(t *testing.T, name string, test func(t *testing.T, n *node)) {
	t.Helper()
	on := func(t *testing.T, c *column) { test(t, c.node(t, name)) }
	eachOf(t, []string{"native"}, on)
	eachOlder(t, []string{"native"}, on)
}

// aside runs a case that makes nodes of its own, in parallel with other such cases. The case
// takes only the release from the column.
func aside(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	t.Parallel()
	for _, c := range suite.columns {
		if c.name == "native" {
			t.Run(c.name, func(t *testing.T) { test(t, c) })
		}
	}
}

// asides counts the nodes, so that each gets a directory of its own.
var asides atomic.Int64

// asideNode is node for a test that runs in parallel with others.
func (c *column) asideNode(t *testing.T) *node {
	t.Helper()
	return c.node(t, fmt.Sprintf("a%d", asides.Add(1)))
}

// node starts a containerd of the column's release for one test.
func (c *column) node(t *testing.T, name string) *node {
	t.Helper()
	programs, err := c.release.find(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	opts := c.release.options(name+c.release.name, programs, c.daemon.Namespace()+"-"+name)
	opts.Env = append(opts.Env, "RKT_CONFIG="+file)
	n := &node{c.private(t, c.release, opts), t, file}
	n.says("")
	t.Cleanup(func() { n.cleanUp(t) })
	return n
}

// says replaces the configuration of the node.
func (n *node) says(format string, args ...any) {
	n.t.Helper()
	write(n.t, n.file, fmt.Sprintf(format, args...))
}

// runs starts a container by ctr with annotations, and returns its pod's record of the stage1.
func (n *node) runs(id string, annotations ...string) (record string) {
	n.t.Helper()
	flags := []string{"-d"}
	for _, a := range annotations {
		flags = append(flags, "--annotation", a)
	}
	n.run(n.t, flags, id, "testprog", "sleep", "1000").must(n.t)
	dir, _ := n.pod(n.t, id)
	return read(n.t, filepath.Join(dir, "shim.json"))
}

// refuses starts a container by ctr, and expects it to fail with an error that contains the
// words.
func (n *node) refuses(annotations []string, words ...string) {
	n.t.Helper()
	flags := []string{"--rm"}
	for _, a := range annotations {
		flags = append(flags, "--annotation", a)
	}
	r := n.run(n.t, flags, n.id(), "true")
	if r.code == 0 {
		n.t.Errorf("%q was accepted", annotations)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			n.t.Errorf("%q: %q is not in: %s", annotations, w, r.stderr)
		}
	}
	n.expectNothingLeft(n.t)
}

// ends kills a running container and removes it.
func (n *node) ends(id string) {
	n.t.Helper()
	n.ctr(n.t, "task", "kill", "--signal", "SIGKILL", id).must(n.t)
	n.awaitStopped(n.t, id)
	n.deleteTask(n.t, id, 137)
	n.ctr(n.t, "container", "delete", id).must(n.t)
}

func TestThePodsAnnotationChoosesTheStage1IfItMay(t *testing.T) {
	eachNode(t, "may", func(t *testing.T, n *node) {
		const asksForOCI = stage1Annotation + "=oci"
		n.refuses([]string{asksForOCI}, `annotation io.containerd.rkt.v1/stage1 asks for the stage1 "oci", which pods may not choose here`,
			"this pod may have native", "change or remove the annotation", "set stage1.oci.pods_may_ask in "+n.file)

		n.says("[stage1.oci]\npods_may_ask = true\n")
		id := n.id()
		if record := n.runs(id, asksForOCI); !strings.Contains(record, `"name":"oci"`) || !strings.Contains(record, `"by":"annotation"`) {
			t.Errorf("the record of the pod is %s", record)
		}
		n.ends(id)
		n.refuses([]string{stage1Annotation + "=fly"}, `"fly"`, "this pod may have native or oci")
		n.refuses([]string{stage1Annotation + "=oic"}, `"oic": did you mean "oci"?`)

		n.says("default = 'oci'\n")
		if record := n.runs(id); !strings.Contains(record, `"name":"oci"`) || !strings.Contains(record, `"by":"configuration"`) {
			t.Errorf("the record of a pod that asks for nothing is %s", record)
		}
		n.ends(id)
	})
}

func TestKeysBelowOurPrefixThatNobodyReadsFailThePod(t *testing.T) {
	eachNode(t, "keys", func(_ *testing.T, n *node) {
		n.refuses([]string{"io.containerd.rkt.v1/stag1=oci"}, `unknown annotation "io.containerd.rkt.v1/stag1": did you mean "io.containerd.rkt.v1/stage1"?`,
			"correct the key or remove it")
		n.refuses([]string{"io.containerd.rkt.v1.grp=x"}, `did you mean "io.containerd.rkt.v1.group"?`)
	})
}

func TestAConfigurationThatIsWrongFailsThePodWithItsLine(t *testing.T) {
	eachNode(t, "wrong", func(_ *testing.T, n *node) {
		n.says("default = 'native'\n[stage1.native]\npods_may_aks = true\n")
		n.refuses(nil, n.file+":3:1: unknown key stage1.native.pods_may_aks: the nearest valid one is pods_may_ask",
			"this node's operator", "rktctl config check")
		n.says("default = 'absent'\n")
		n.refuses(nil, "there is no stage1 called absent")
	})
}

// copyOf copies a bundled stage1 to a directory that the shim searches only if the
// configuration names it.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("cp", "-a", filepath.Join(suite.shims, "stage1", name), to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func TestAStage1HasToHaveTheDigestOfTheConfiguration(t *testing.T) {
	eachNode(t, "pin", func(t *testing.T, n *node) {
		image := copyOf(t, "native")
		n.says("default = 'mine'\nstage1.mine.path = '%s'\n", image)
		id := n.id()
		record := n.runs(id)
		n.ends(id)
		_, digest, _ := strings.Cut(record, `"digest":"`)
		digest, _, _ = strings.Cut(digest, `"`)
		if !strings.Contains(record, `"name":"mine"`) || !strings.HasPrefix(digest, "sha512-") {
			t.Fatalf("the record of the pod is %s", record)
		}

		n.says("default = 'mine'\n[stage1.mine]\npath = '%s'\ndigest = '%s'\n", image, digest)
		n.runs(id)
		n.ends(id)
		// A user who changes the image after that cannot have the change executed.
		write(t, filepath.Join(image, "rootfs/added"), "by somebody")
		n.refuses(nil, "stage1 mine", image, "has to be "+digest)
		other := strings.Replace(digest, digest[7:9], map[bool]string{true: "00", false: "11"}[digest[7:9] != "00"], 1)
		n.says("default = 'mine'\n[stage1.mine]\npath = '%s'\ndigest = '%s'\n", image, other)
		n.refuses(nil, "has to be "+other)
	})
}

// The pod keeps its stage1: neither a further container nor `delete` reads the configuration or
// the image's original path again.
func TestThePodKeepsItsStage1WhateverTheConfigurationBecomes(t *testing.T) {
	eachNode(t, "keeps", func(t *testing.T, n *node) {
		image := copyOf(t, "oci")
		n.says("[stage1.mine]\npath = '%s'\npods_may_ask = true\n", image)
		const asks = stage1Annotation + "=mine"
		pod := "group-" + n.id()
		if record := n.runs(pod, asks, groupAnnotation+"="+pod); !strings.Contains(record, `"name":"mine"`) {
			t.Fatalf("the record of the pod is %s", record)
		}
		n.says("this is not TOML\n")
		if err := os.RemoveAll(image); err != nil {
			t.Fatal(err)
		}
		member := n.id()
		n.run(t, []string{"-d", "--annotation", asks, "--annotation", groupAnnotation + "=" + pod}, member, "testprog", "sleep", "1000").must(t)
		n.exec(t, nil, member, "echo", "at home").must(t).mustSay(t, "at home\n")

		other := n.run(t, []string{"-d", "--annotation", stage1Annotation + "=native", "--annotation", groupAnnotation + "=" + pod}, n.id(), "true")
		if other.code == 0 || !strings.Contains(other.stderr, `asks for the stage1 "native", and the pod has mine: all containers of a pod share one`) {
			t.Errorf("a member that asks for another stage1: code %d, %s", other.code, other.stderr)
		}

		shim := n.shim(t, pod)
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.awaitNoTasks(t)
	})
}

// The stage1 oci does not honour the domain name of a spec.
func TestAnExcusedStage1MayIgnoreAField(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		n := c.node(t, "excused")
		for text, field := range map[string]string{
			"":                                    "/domainname",
			"[stage1.oci]\naccept = ['appc']":     "",
			"stage1.oci.accept = ['/domainname']": "",
			"stage1.oci.accept = ['site']\nfields.site = ['/domainname', '/hostname']": "",
			"stage1.oci.accept = ['/hostname']":                                        "/domainname",
		} {
			n.says("default = 'oci'\n%s\n", text)
			task, err := n.container(t, []string{"testprog", "sleep", "1000"}, oci.WithDomainname("example.com")).NewTask(n.context(t), cio.NullIO)
			if field != "" {
				if err == nil || !strings.Contains(err.Error(), "config.json asks for "+field+", which stage1 oci does not support") {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			dir, _ := n.pod(t, task.ID())
			if record := read(t, filepath.Join(dir, "shim.json")); !strings.Contains(record, `"excused":[`) || !strings.Contains(record, `"/domainname"`) {
				t.Errorf("%q: what is not enforced is not on record: %s", text, record)
			}
			if err := task.Start(n.context(t)); err != nil {
				t.Errorf("%q: start: %v", text, err)
			}
		}
	})
}
