package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
)

// node has a default of its own, two stage1s that pods may ask for, one that they
// may not, and one whose pods may not leave it.
const node = `
default = "oci"
[stage1.oci]
pods_may_ask = true
[stage1.fly]
path = "/opt/fly"
digest = "DIGEST"
pods_may_ask = true
accept = ["/linux/seccomp"]
[stage1.secret]
path = "/opt/secret"
[stage1.kvm]
pods_may_leave = false
`

func nodeConfig(t *testing.T) *Config {
	t.Helper()
	c, err := Parse("node", []byte(strings.ReplaceAll(node, "DIGEST", aDigest)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func asks(stage1 string) map[string]string { return map[string]string{annotation.Stage1: stage1} }

func TestTheStage1IsChosenInThisOrder(t *testing.T) {
	fly := Choice{Path: "/opt/fly", Digest: aDigest, Accept: []string{"/linux/seccomp"}}
	named := func(c Choice, name string, by By) Choice { c.Name, c.By = name, by; return c }
	for name, c := range map[string]struct {
		config *Config
		ask    Ask
		want   Choice
	}{
		"nobody asks, and there is no configuration": {&Config{}, Ask{}, named(Choice{}, "native", ByNothing)},
		"nobody asks":                         {nodeConfig(t), Ask{}, named(Choice{}, "oci", ByConfig)},
		"the options ask":                     {nodeConfig(t), Ask{Options: "secret"}, named(Choice{Path: "/opt/secret"}, "secret", ByOptions)},
		"the type pins":                       {nodeConfig(t), Ask{Type: "fly"}, named(fly, "fly", ByType)},
		"the type pins what nobody has named": {nodeConfig(t), Ask{Type: "x"}, named(Choice{}, "x", ByType)},
		"type and options agree":              {nodeConfig(t), Ask{Type: "fly", Options: "fly"}, named(fly, "fly", ByType)},
		"the annotation asks":                 {nodeConfig(t), Ask{Annotations: asks("fly")}, named(fly, "fly", ByAnnotation)},
		"annotation before type":              {nodeConfig(t), Ask{Type: "secret", Annotations: asks("fly")}, named(fly, "fly", ByAnnotation)},
		"annotation before options":           {nodeConfig(t), Ask{Options: "secret", Annotations: asks("fly")}, named(fly, "fly", ByAnnotation)},
		"the annotation asks for what the pod has, which pods may not ask for": {
			nodeConfig(t), Ask{Type: "secret", Annotations: asks("secret")}, named(Choice{Path: "/opt/secret"}, "secret", ByType),
		},
		"the annotation asks for what is built in": {&Config{}, Ask{Annotations: asks("native")}, named(Choice{}, "native", ByNothing)},
		"a pod that must stay does":                {nodeConfig(t), Ask{Type: "kvm", Annotations: asks("kvm")}, named(Choice{}, "kvm", ByType)},
		"annotations that are not ours":            {nodeConfig(t), Ask{Annotations: map[string]string{"a": "b", "io.containerd.rkt.v10": "", annotation.Group: "g"}}, named(Choice{}, "oci", ByConfig)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.config.Choose(c.ask)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// The sentences are read by people who cannot see the node: each says which key,
// what is possible, and what to do.
func TestWhatMayNotBeAskedForIsRefusedInASentence(t *testing.T) {
	for name, c := range map[string]struct {
		config *Config
		ask    Ask
		want   []string
	}{
		"forbidden": {nodeConfig(t), Ask{Annotations: asks("secret")}, []string{
			annotation.Stage1, `"secret"`, "this pod may have fly or oci", "change or remove the annotation", "stage1.secret.pods_may_ask", File,
		}},
		"forbidden without a configuration": {&Config{}, Ask{Annotations: asks("oci")}, []string{
			annotation.Stage1, `"oci"`, "this pod may have native:", "stage1.oci.pods_may_ask",
		}},
		"what a pinned pod has counts": {nodeConfig(t), Ask{Type: "secret", Annotations: asks("none")}, []string{"fly or oci or secret"}},
		"misspelt":                     {nodeConfig(t), Ask{Annotations: asks("fyl")}, []string{`"fyl": did you mean "fly"? this pod may have fly or oci: change or remove`}},
		"nothing":                      {nodeConfig(t), Ask{Annotations: asks("")}, []string{`the stage1 "": did you mean`}},
		"no name at all":               {nodeConfig(t), Ask{Annotations: asks("../../etc")}, []string{`"../../etc": did you mean`, "this pod may have fly or oci"}},
		"a pod that must stay": {nodeConfig(t), Ask{Type: "kvm", Annotations: asks("fly")}, []string{
			annotation.Stage1, `"fly"`, "io.containerd.rkt-kvm.v1 cannot leave kvm", "remove the annotation", "runtime class",
		}},
		"an unknown key": {nodeConfig(t), Ask{Annotations: map[string]string{annotation.Prefix + "/stag": "fly"}}, []string{
			`unknown annotation "io.containerd.rkt.v1/stag"`, `did you mean "io.containerd.rkt.v1/stage1"?`, "correct the key or remove it",
		}},
		"an unknown key with a dot": {&Config{}, Ask{Annotations: map[string]string{annotation.Prefix + ".grp": "fly"}}, []string{`did you mean "io.containerd.rkt.v1.group"?`}},
		"options against the type":  {nodeConfig(t), Ask{Type: "oci", Options: "native"}, []string{"they ask for the stage1 native, and the runtime io.containerd.rkt-oci.v1 has oci"}},
		"no name in the options":    {nodeConfig(t), Ask{Options: "OCI"}, []string{`runtime options: stage1 "OCI": a name has small letters`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.config.Choose(c.ask)
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%+v, %v", got, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestASandboxChoosesOnceAndOnlyBeforeItsFirstApp(t *testing.T) {
	read := func() (*Config, error) { return nodeConfig(t), nil }
	p := NewPod(Choice{Name: "oci", By: ByConfig}, Ask{}, read)
	if err := p.Choose(asks("secret")); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `"secret"`) {
		t.Errorf("what is forbidden: %v", err)
	}
	if err := p.Choose(asks("fly")); err != nil {
		t.Fatal(err)
	}
	if c := p.Choice(); c.Name != "fly" || c.Path != "/opt/fly" || c.By != ByAnnotation {
		t.Errorf("the choice is %+v", c)
	}
	if err := p.Choose(asks("fly")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := p.Choose(asks("oci")); !errdefs.IsFailedPrecondition(err) || p.Choice().Name != "fly" {
		t.Errorf("another choice: %v, %+v", err, p.Choice())
	}

	p = NewPod(Choice{Name: "oci"}, Ask{}, read)
	if err := p.Admit(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Choose(asks("fly")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a choice after the first app: %v", err)
	}
}

func TestASandboxThatAsksForNothingReadsNoConfiguration(t *testing.T) {
	broken := errors.New("broken configuration")
	p := NewPod(Choice{Name: "oci"}, Ask{}, func() (*Config, error) { return nil, broken })
	if err := p.Choose(map[string]string{"team": "a"}); err != nil {
		t.Error(err)
	}
	if err := p.Choose(asks("fly")); !errors.Is(err, broken) {
		t.Errorf("one that asks: %v", err)
	}
	if err := p.Choose(map[string]string{annotation.Prefix + "/x": ""}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestAMemberCanAskForWhatItsPodHasAndForNothingElse(t *testing.T) {
	p := NewPod(Choice{Name: "fly"}, Ask{Options: "oci"}, nil)
	for _, ok := range []map[string]string{nil, asks("fly"), {"team": "a"}} {
		if err := p.Admit(ok); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
	err := p.Admit(asks("oci"))
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `asks for the stage1 "oci", and the pod has fly`) {
		t.Errorf("another stage1: %v", err)
	}
	if err := p.Admit(map[string]string{annotation.Prefix + "/stage": ""}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an unknown key: %v", err)
	}
	// CRI sends the handler's options for each container of a pod whose annotation
	// has overruled them.
	for asked, ok := range map[string]bool{"": true, "fly": true, "oci": true, "native": false} {
		if err := p.AdmitOptions(asked); (err == nil) != ok || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("options that ask for %q: %v", asked, err)
		}
	}
}
