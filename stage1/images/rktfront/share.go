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

// holderRoot is the root file system of who holds what the apps of a pod share.
const holderRoot = front + "/holder"

// share has the request of `run` ask for a process that holds the namespaces which the
// pod's apps share as rkt's did, unless the pod gets one app alone: that has its own, and
// is the first process in them.
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
