// Package cri tests pods through the Kubernetes Container Runtime Interface. The node is a
// private containerd with its CRI plugin and real CNI plugins, and the client is the
// kubelet's. Every case runs once for each handler: with runc's as the reference, and with
// the default stage1's, with and without a pause container. A few cases run with the
// handlers of nspawn, and with those of oci with a current runc. With RKT_TEST_EVERY_STAGE1
// all cases run with the handlers of nspawn and oci. The result of each case is a row of
// docs/results/kubernetes.md, which `make test-cri` writes. Pods of the stage1 kvm, each of which
// boots a machine, have a test of their own, for `make test-kvm`.
//
// The package runs in an enclosure, because a node itself chooses the names of its bridge
// and the paths of its network namespaces, mounts and cgroups.
package cri
