package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// BuiltIn is the stage1 of a pod for which neither a client nor the operator chooses one.
const BuiltIn = "native"

// Ask has the stage1s that a client asks for. An empty name asks for none.
type Ask struct {
	// Type is the stage1 that the runtime's type pins: oci for io.containerd.rkt-oci.v1.
	Type string `json:"type,omitempty"`
	// Options is the stage1 that the runtime options name.
	Options string `json:"options,omitempty"`
	// Annotations of the pod, or of a container that is a pod of its own.
	Annotations map[string]string `json:"-"`
}

// By names the source of a choice.
type By string

// The sources. An earlier one overrides a later one.
const (
	ByAnnotation By = "annotation"
	ByType       By = "runtime type"
	ByOptions    By = "runtime options"
	ByConfig     By = "configuration"
	ByNothing    By = "built in"
)

// Choice is the stage1 of a pod with its configuration. It is made once per pod; `start`
// passes it to the server.
type Choice struct {
	Name   string   `json:"name"`
	By     By       `json:"by"`
	Path   string   `json:"path,omitempty"`   // of the image; empty: the one that came with the shim
	Digest string   `json:"digest,omitempty"` // that the image must have; empty: any
	Accept []string `json:"accept,omitempty"` // fields of config.json that it may ignore
	ACIs   ACIs     `json:"acis,omitzero"`    // if the image is one

	RefuseUnknown bool `json:"refuseUnknown,omitempty"` // Config.RefuseUnknown
}

// Equal reports whether two choices lead to the same stage1 with the same rules.
func (c Choice) Equal(o Choice) bool {
	return c.Name == o.Name && c.Path == o.Path && c.Digest == o.Digest && slices.Equal(c.Accept, o.Accept) && c.RefuseUnknown == o.RefuseUnknown &&
		c.ACIs.Keyring == o.ACIs.Keyring && slices.Equal(c.ACIs.Dependencies, o.ACIs.Dependencies)
}

// Choose returns the stage1 of a pod by the rule in the package's documentation. It checks
// all annotations that begin with our prefix. Its errors are for the author of the
// annotations, who usually has no access to the node.
func (c *Config) Choose(a Ask) (Choice, error) {
	if err := annotation.Check(a.Annotations); err != nil {
		return Choice{}, err
	}
	name, by, err := c.withoutAnnotation(a)
	if err != nil {
		return Choice{}, err
	}
	if asked, ok := a.Annotations[annotation.Stage1]; ok && asked != name {
		if err := c.mayAsk(asked, name, by); err != nil {
			return Choice{}, err
		}
		name, by = asked, ByAnnotation
	}
	return c.choice(name, by), nil
}

// choice returns a choice of the stage1 name, with its configuration if it has one.
func (c *Config) choice(name string, by By) Choice {
	s := c.Stage1s[name]
	return Choice{Name: name, By: by, Path: s.Path, Digest: s.Digest, Accept: s.Accept, ACIs: c.ACIs, RefuseUnknown: c.RefuseUnknown}
}

// withoutAnnotation returns the stage1 of pods without annotation.Stage1.
func (c *Config) withoutAnnotation(a Ask) (string, By, error) {
	switch {
	case a.Options != "" && !IsName(a.Options):
		return "", "", fmt.Errorf("runtime options: stage1 %q: a name has small letters, digits and hyphens only", a.Options)
	case a.Type != "" && a.Options != "" && a.Type != a.Options:
		return "", "", fmt.Errorf("runtime options: they ask for the stage1 %s, and the runtime %s has %s", a.Options, RuntimeName(a.Type), a.Type)
	case a.Type != "":
		return a.Type, ByType, nil
	case a.Options != "":
		return a.Options, ByOptions, nil
	case c.Default != "":
		return c.Default, ByConfig, nil
	}
	return BuiltIn, ByNothing, nil
}

// mayAsk returns an error if a pod must not ask for the stage1 asked. has is the stage1 that
// the pod has if it does not ask.
func (c *Config) mayAsk(asked, has string, by By) error {
	if by == ByType && c.Stage1s[has].PodsMustStay {
		return fmt.Errorf("annotation %s asks for the stage1 %q, and pods of the runtime %s cannot leave %s: remove the annotation, or use another runtime class",
			annotation.Stage1, asked, RuntimeName(has), has)
	}
	if c.Stage1s[asked].PodsMayAsk {
		return nil
	}
	choices := []string{has}
	for name, s := range c.Stage1s {
		if s.PodsMayAsk && name != has {
			choices = append(choices, name)
		}
	}
	slices.Sort(choices)
	if n := spelling.Nearest(asked, choices); spelling.Distance(asked, n) <= 2 || !IsName(asked) {
		return fmt.Errorf("annotation %s asks for the stage1 %q: did you mean %q? this pod may have %s: change or remove the annotation",
			annotation.Stage1, asked, n, strings.Join(choices, " or "))
	}
	return fmt.Errorf("annotation %s asks for the stage1 %q, which pods may not choose here; this pod may have %s: change or remove the annotation, or have the node's operator set stage1.%s.%s in %s",
		annotation.Stage1, asked, strings.Join(choices, " or "), asked, keyPodsMayAsk, cmp.Or(c.file, File))
}

// PinnedStage1 returns the stage1 that the name of a runtime pins, or an empty string. It
// reports whether the name is one of RuntimeName.
func PinnedStage1(runtime string) (stage1 string, ok bool) {
	if runtime == RuntimeName("") {
		return "", true
	}
	rest, ok := strings.CutPrefix(runtime, "io.containerd.rkt-")
	stage1, ok2 := strings.CutSuffix(rest, ".v1")
	return stage1, ok && ok2 && IsName(stage1)
}

// RuntimeName returns the name of the runtime that pins a stage1, as clients write it.
func RuntimeName(stage1 string) string {
	if stage1 == "" {
		return annotation.Prefix
	}
	return "io.containerd.rkt-" + stage1 + ".v1"
}
