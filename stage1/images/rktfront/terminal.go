package rktfront

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront/relay"
)

// terminal returns the relay between the terminal of `run` and that of the pod's app. It
// returns nil unless the pod is interactive, has one app, and `run` is on a terminal.
func (o *Options) terminal(apps int) (*relay.Relay, error) {
	if !o.Interactive || o.Mutable || apps != 1 {
		return nil, nil
	}
	return relay.New(directory+"/console", os.Stdin, os.Stdout)
}

// enterTerminal returns the relay of a call of enter, or nil if the caller is not on a terminal.
func enterTerminal() (*relay.Relay, error) {
	return relay.New(fmt.Sprintf("%s/console-%d", directory, os.Getpid()), os.Stdin, os.Stdout)
}

// onTerminal makes a request ask for a terminal, if there is a relay.
func onTerminal(r *abi.Request, t *relay.Relay) error {
	if t == nil {
		return nil
	}
	r.Terminal, r.ConsoleSocket = true, t.Socket()
	rows, columns := t.Size()
	on := func(p *specs.Process) {
		p.Terminal, p.ConsoleSize = true, &specs.Box{Height: uint(rows), Width: uint(columns)}
	}
	var err error
	if r.Entrypoint == abi.Enter {
		var p specs.Process
		if err = json.Unmarshal(r.Process, &p); err == nil {
			on(&p)
			r.Process, err = json.Marshal(&p)
		}
		return err
	}
	var s specs.Spec
	if err = json.Unmarshal(r.Spec, &s); err == nil {
		on(s.Process)
		r.Spec, err = json.Marshal(&s)
	}
	return err
}
