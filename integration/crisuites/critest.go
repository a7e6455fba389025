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
		program:    binaries.CRITest,
		programs:   []string{"crisuites/nginx", "crisuites/nonewprivs", "crisuites/applets"},
		images:     critestImages,
		prepare:    func(*node.Options, node.Handler) error { return nil },
		command:    critestCommand,
		report:     readGinkgo,
		results:    reportFile,
		exceptions: ofMachines(),
	}
}

// ofMachines are the specs that no machine passes, and why.
func ofMachines() map[string]string {
	const (
		namespaces  = "Security Context / NamespaceOption / runtime should support "
		propagation = "Container Mount Propagation / runtime should support mount propagation / mount with "
		readOnly    = "Container Mount Readonly / runtime should support readonly mounts / "
		refused     = "a machine cannot be in a namespace of the node, and the stage1 refuses it by name"
		propagates  = "mounts do not propagate into a machine, and the stage1 refuses it by name"
		bridge      = "the spec makes a bridge, and the machine's kernel has no module for them"
	)
	all := map[string]string{}
	for spec, why := range map[string]string{
		"Streaming / runtime should support streaming interfaces / runtime should support portforward in host network": refused,
		namespaces + "HostIpc is true":     refused,
		namespaces + "HostNetwork is true": refused,
		namespaces + "HostPID":             refused,
		propagation + "'rshared' should support propagation from host to container and vice versa": propagates,
		propagation + "'rslave' should support propagation from host to container":                 propagates,
		readOnly + "should support non-recursive readonly mounts":                                  "what is mounted below a volume is part of the same file system in the machine, and read-only with it",
		"Security Context / bucket / runtime should support adding capability":                     bridge,
		"Security Context / bucket / runtime should support Privileged is true":                    bridge,
	} {
		for _, handler := range []string{"kvm", "kvm-shim"} {
			all[handler+" "+spec] = why
		}
	}
	return all
}

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
