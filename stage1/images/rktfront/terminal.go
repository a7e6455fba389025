package rktfront

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront/relay"
)

// terminal returns what carries between the terminal that `run` was called with and that
// of the pod's app. It is nil unless the client has asked for an interactive pod, which
// has one app, from a terminal.
func (o *Options) terminal(apps int) (*relay.Relay, error) {
	if !o.Interactive || o.Mutable || apps != 1 {
		return nil, nil
	}
	return relay.New(directory+"/console", os.Stdin, os.Stdout)
}

// enterTerminal is that of a call of enter, which is on a terminal if its caller is.
func enterTerminal() (*relay.Relay, error) {
	return relay.New(fmt.Sprintf("%s/console-%d", directory, os.Getpid()), os.Stdin, os.Stdout)
}

// onTerminal has the process that a request is for be on a terminal, if there is a relay
// to take that.
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
