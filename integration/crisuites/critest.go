package main

import (
	"fmt"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
)

// critest is the validation suite of the CRI tools.
func critest() suite {
	return suite{
		program:  binaries.CRITest,
		programs: []string{"crisuites/nginx", "crisuites/nonewprivs", "crisuites/applets"},
		images:   critestImages,
		prepare:  func(*node.Options, node.Handler) error { return nil },
		command:  critestCommand,
		report:   readGinkgo,
		results:  reportFile,
		exceptions: map[string]string{
			"kvm " + hostNetwork:      notOfMachines,
			"kvm-shim " + hostNetwork: notOfMachines,
		},
	}
}

// A spec that no machine passes, and why.
const (
	hostNetwork   = "Streaming / runtime should support streaming interfaces / runtime should support portforward in host network"
	notOfMachines = "a machine cannot be in the node's network, and the stage1 refuses it by name"
)

func critestCommand(n *node.Node, handler string, o options) []string {
	return []string{
		filepath.Join(suiteDir, "critest"),
		"-runtime-endpoint=" + n.Endpoint(),
		"-runtime-handler=" + handler,
		"-ginkgo.json-report=" + reportFile,
		"-ginkgo.seed=1", // the seed decides the order
		"-ginkgo.no-color",
		"-ginkgo.focus=" + o.focus,
		// The suite names one image by its digest, which only the original has. And the shell
		// of Debian's busybox executes its built-in ls, although the file ls is masked.
		"-ginkgo.skip=public image with digest|runtime should support MaskedPaths",
		fmt.Sprintf("-ginkgo.timeout=%s", o.timeout),
		fmt.Sprintf("-test.timeout=%s", o.timeout),
	}
}
