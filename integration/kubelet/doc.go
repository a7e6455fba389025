// Package kubelet runs a real kubelet, without an API server, on a containerd of its
// own, and gives it static pods: with runc's handler, and with ours in both sandbox
// modes. What a cluster's user sees of a pod is what it looks at: the statuses that
// the kubelet reports, its logs and its statistics.
//
// A kubelet that stands alone knows no RuntimeClass. So each handler is the default
// one of a node of its own.
package kubelet
