// Package sandbox is the words of containerd's Sandbox service and of CRI's
// description of a pod, as far as they are spoken here: generated messages that
// are on the wire what containerd's own are. docs/adr/0010 says why they are ours.
//
// It has no logic: package shim serves them.
package sandbox

//go:generate sh -c "protoc -I=.. -I=$(go list -m -f '{{.Dir}}' github.com/containerd/containerd/api) --go_out=.. --go_opt=paths=source_relative ../sandbox/sandbox.proto ../sandbox/cri.proto"

// Service is the name of the service, as it is on the wire.
const Service = "containerd.runtime.sandbox.v1.Sandbox"

// PodSandboxConfigName is CRI's name of the message PodSandboxConfig.
const PodSandboxConfigName = "runtime.v1.PodSandboxConfig"
