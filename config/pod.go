package config

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
)

// Pod has the choice of one pod. The pod's server keeps it.
type Pod struct {
	ask  Ask // without annotations
	read func() (*Config, error)

	mu     sync.Mutex
	choice Choice
	fixed  bool // the choice is final: a sandbox has made it, or a container was checked against it
}

// NewPod returns a Pod with the choice that `start` has made, and with the Ask for which it
// was made. If a sandbox asks for a stage1, Choose calls the function read to read the
// configuration again.
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

// Choose makes the choice for a sandbox by its annotations. `start` does not know them,
// because the bundle of a sandbox has no config.json. Choose is legal before the stage1 is
// opened and before the first call of Admit. After that, a different choice returns
// errdefs.ErrFailedPrecondition. Annotations that ask for a forbidden stage1 return
// errdefs.ErrInvalidArgument.
func (p *Pod) Choose(annotations map[string]string) error {
	ask := p.ask
	ask.Annotations = annotations
	choice := p.Choice()
	if _, asks := annotations[annotation.Stage1]; asks {
		c, err := p.read()
		if err == nil {
			choice, err = c.Choose(ask)
		}
		if err != nil {
			return invalid(err)
		}
	} else if err := annotation.Check(annotations); err != nil {
		return invalid(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed && p.choice.Name == choice.Name {
		return nil // a repeated call changes nothing
	}
	if p.fixed {
		return fmt.Errorf("the pod has its stage1, %s, already: %w", p.choice.Name, errdefs.ErrFailedPrecondition)
	}
	p.choice, p.fixed = choice, true
	return nil
}

// Admit returns an error if a container with these annotations cannot be in the pod.
// Annotations may ask for the pod's stage1 or for none.
func (p *Pod) Admit(annotations map[string]string) error {
	if err := annotation.Check(annotations); err != nil {
		return invalid(err)
	}
	has := p.fix()
	if asked, ok := annotations[annotation.Stage1]; ok && asked != has {
		return fmt.Errorf("annotation %s asks for the stage1 %q, and the pod has %s: all containers of a pod share one: set the annotation on the pod, or remove it from the container: %w",
			annotation.Stage1, asked, has, errdefs.ErrInvalidArgument)
	}
	return nil
}

// AdmitOptions is Admit for the stage1 that runtime options ask for, which may be empty.
// It also accepts the stage1 of the first container's options, although an annotation may
// have overridden that stage1: CRI sends the same options for all containers of a pod.
func (p *Pod) AdmitOptions(asked string) error {
	if has := p.fix(); asked != "" && asked != has && asked != p.ask.Options {
		return fmt.Errorf("runtime options: they ask for the stage1 %s, and the pod has %s: %w", asked, has, errdefs.ErrInvalidArgument)
	}
	return nil
}

// fix makes the choice final and returns the name of the stage1.
func (p *Pod) fix() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fixed = true
	return p.choice.Name
}

func invalid(err error) error { return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument) }
