// Package cri tests pods through the Kubernetes Container Runtime Interface: a
// private containerd with its CRI plugin and real CNI plugins, driven by the client
// that the kubelet uses. Every case runs once per handler: runc's as the reference,
// and ours with a pause container and without, of the default stage1. With those of
// nspawn run a few, and with RKT_TEST_EVERY_STAGE1 all, as with those of oci; without that,
// oci with a current runc runs a few. What became of each is a row of
// docs/results/kubernetes.md, which `make test-cri` writes.
//
// It runs in an enclosure, because a node has its bridge, network namespaces,
// mounts and cgroups at places of its own choice.
package cri
