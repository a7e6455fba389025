// The validation suite of the Kubernetes project's CRI tools, whose modules are not
// those of integration/go.mod.
module github.com/rkt/containerd-shim-rkt-v1/integration/critools

go 1.26.6

require sigs.k8s.io/cri-tools v1.36.0 // indirect
