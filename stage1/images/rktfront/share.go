package rktfront

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi/hold"
)

// holderRoot is the root file system of who holds what the apps of a pod share.
const holderRoot = directory + "/holder"

// Sharing returns a request for the process that holds the namespaces which the pod's
// apps share as rkt's did, or nil: the only app of a pod that gets no others has its own,
// and is the first process in them.
func (o *Options) Sharing(apps int) (*abi.Request, error) {
	if !o.Mutable && apps < 2 {
		return nil, nil
	}
	program, err := hold.Program()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(holderRoot, 0o755); err != nil {
		return nil, err
	}
	if err := hold.Fill(holderRoot, program); err != nil {
		return nil, fmt.Errorf("root of the pod's holder: %w", err)
	}
	root, err := filepath.Abs(holderRoot)
	if err != nil {
		return nil, err
	}
	s := &abi.Sandbox{Hostname: o.Hostname}
	for _, ns := range o.namespaces() {
		s.Namespaces = append(s.Namespaces, abi.Namespace{Type: string(ns.Type)})
	}
	spec, err := json.Marshal(hold.Spec(root, s, "", ""))
	return &abi.Request{
		Version: abi.Version, Entrypoint: abi.Run, Pod: o.UUID, Container: o.UUID, Bundle: filepath.Dir(root), Rootfs: root,
		Spec: spec, Sandbox: s,
	}, err
}

// Held remembers who holds what the apps share.
func (o *Options) Held(pid int) error {
	o.Holder = pid
	return o.remember()
}

// namespaces are those of every app beside its own mounts.
func (o *Options) namespaces() []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.UTSNamespace}}
	if !o.ParentIPC {
		list = append(list, specs.LinuxNamespace{Type: specs.IPCNamespace})
	}
	if o.PrivateNetwork {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// joined are the namespaces of an app: those that are shared have a path.
func (o *Options) joined() []specs.LinuxNamespace {
	list := o.namespaces()
	for i := 0; o.Holder != 0 && i < len(list); i++ {
		n := &list[i]
		file := string(n.Type)
		if n.Type == specs.NetworkNamespace {
			file = "net"
		}
		n.Path = fmt.Sprintf("/proc/%d/ns/%s", o.Holder, file)
	}
	return append(list, specs.LinuxNamespace{Type: specs.MountNamespace})
}
