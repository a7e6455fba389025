package rktfront

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
)

// holderRoot is the root file system of the holder.
const holderRoot = front + "/holder"

// share makes the request of `run` ask for a holder of the namespaces that the pod's apps
// share, as in rkt. A pod with a single app needs none, because the app is the first
// process of its own namespaces.
func (o *Options) share(r *abi.Request) error {
	if !o.Mutable {
		names, err := apps()
		if err != nil || len(names) < 2 {
			return err
		}
	}
	program, err := hold.Program()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(holderRoot, 0o755); err != nil {
		return err
	}
	if err := hold.Fill(holderRoot, program); err != nil {
		return fmt.Errorf("root of the pod's holder: %w", err)
	}
	if r.Rootfs, err = filepath.Abs(holderRoot); err != nil {
		return err
	}
	r.Container, r.Bundle = o.UUID, filepath.Dir(r.Rootfs)
	r.Sandbox = &abi.Sandbox{Hostname: o.Hostname}
	for _, ns := range o.namespaces() {
		r.Sandbox.Namespaces = append(r.Sandbox.Namespaces, abi.Namespace{Type: string(ns.Type)})
	}
	r.Spec, err = json.Marshal(hold.Spec(r.Rootfs, r.Sandbox, "", ""))
	return err
}

// namespaces returns the namespaces of every app, except the mount namespace.
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

// joined returns the namespaces of an app. A shared namespace has a path.
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
