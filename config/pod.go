package config

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// Pod is the choice of one pod, in the server that serves it.
type Pod struct {
	ask  Ask // without annotations
	read func() (*Config, error)

	mu     sync.Mutex
	choice Choice
	fixed  bool // a sandbox was made, or an app admitted
}

// NewPod takes over what `start` has chosen. ask is what it chose by; read reads
// the configuration again, if there is need to.
func NewPod(choice Choice, ask Ask, read func() (*Config, error)) *Pod {
	ask.Annotations = nil
	return &Pod{choice: choice, ask: ask, read: read}
}

// Choice returns the stage1 of the pod.
func (p *Pod) Choice() Choice {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.choice
}

// Choose makes the choice for a sandbox by its annotations, which `start` could
// not know: its bundle has no config.json. It is legal before the stage1 is opened
// and the first app admitted; another choice later is errdefs.ErrFailedPrecondition.
// What annotations may not ask for is errdefs.ErrInvalidArgument.
func (p *Pod) Choose(annotations map[string]string) error {
	ask := p.ask
	ask.Annotations = annotations
	choice := p.Choice()
	if _, asks := annotations[Stage1Annotation]; asks {
		c, err := p.read()
		if err == nil {
			choice, err = c.Choose(ask)
		}
		if err != nil {
			return invalid(err)
		}
	} else if err := CheckAnnotations(annotations); err != nil {
		return invalid(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed && p.choice.Name == choice.Name {
		return nil // asked again; what was chosen stays as it is
	}
	if p.fixed {
		return fmt.Errorf("the pod has its stage1, %s, already: %w", p.choice.Name, errdefs.ErrFailedPrecondition)
	}
	p.choice, p.fixed = choice, true
	return nil
}

// Admit tells whether a container with these annotations can be in the pod. One
// that asks for nothing can, and one that asks for what the pod has.
func (p *Pod) Admit(annotations map[string]string) error {
	if err := CheckAnnotations(annotations); err != nil {
		return invalid(err)
	}
	has := p.fix()
	if asked, ok := annotations[Stage1Annotation]; ok && asked != has {
		return fmt.Errorf("annotation %s asks for the stage1 %q, and the pod has %s: all containers of a pod share one: set the annotation on the pod, or remove it from the container: %w",
			Stage1Annotation, asked, has, errdefs.ErrInvalidArgument)
	}
	return nil
}

// AdmitOptions is Admit for the stage1 that runtime options ask for, or an empty
// name. Those of the pod's first container may have been overruled by its
// annotation, and CRI sends the same ones for all containers of a pod.
func (p *Pod) AdmitOptions(asked string) error {
	if has := p.fix(); asked != "" && asked != has && asked != p.ask.Options {
		return fmt.Errorf("runtime options: they ask for the stage1 %s, and the pod has %s: %w", asked, has, errdefs.ErrInvalidArgument)
	}
	return nil
}

// fix ends the time in which the choice can be made, and returns the name.
func (p *Pod) fix() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixed = true
	return p.choice.Name
}

func invalid(err error) error { return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument) }
