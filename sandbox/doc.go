// Package sandbox has the messages of containerd's Sandbox service, and the part of CRI's
// description of a pod that this shim reads, as package wire reads and writes them.
// docs/adr/0010-the-sandbox-service.md says why they are separate.
//
// The package has no logic: package shim implements the service.
package sandbox

// Service is the name of the service on the wire.
const Service = "containerd.runtime.sandbox.v1.Sandbox"

// EndsWithApps is the annotation of a sandbox without containerd that ends when all its apps have
// ended, if it has any. Its value is true.
const EndsWithApps = "coreos.com/rkt/ends-with-apps"

// PodSandboxConfigName is CRI's name of the message PodSandboxConfig.
const PodSandboxConfigName = "runtime.v1.PodSandboxConfig"
