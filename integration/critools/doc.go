// Package critools pins the CRI tools' validation suite, critest, which is built
// from their module: go test -c sigs.k8s.io/cri-tools/cmd/critest. crictl comes from the same module.
package critools
