module github.com/rkt/containerd-shim-rkt-v1

go 1.26

require (
	github.com/appc/spec v0.8.11
	github.com/containerd/containerd/api v1.12.0
	github.com/containerd/containerd/v2 v2.4.2
	github.com/opencontainers/runtime-spec v1.3.0
)
