// Package kubelet runs a real kubelet, without an API server, on a containerd of its
// own, and gives it static pods: with runc's handler, and with this shim's in both sandbox
// modes. The tests check what a user of a cluster sees of a pod: its status, its logs and
// its statistics. The pods of contrib/deploy's DaemonSets are run in the same way: one installs
// the runtime, and one removes it under a pod.
//
// A kubelet without an API server knows no RuntimeClass. So each handler gets a node of its
// own, on which it is the default.
package kubelet
