package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// bridge returns the name of a network's interface on the node, and subnet the range of the
// pods' addresses.
func bridge(network int) string { return fmt.Sprintf("rkt-cri%d", network) }
func subnet(network int) string { return fmt.Sprintf("10.254.%d.0/24", 77+network) }

// conflist returns the configuration of the pods' network: a bridge that connects to the node
// only, and host ports.
const conflist = `{
  "cniVersion": "1.0.0",
  "name": "BRIDGE",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "BRIDGE",
      "isGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "SUBNET"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// WriteNetwork writes the configuration of a network of pods.
func WriteNetwork(dir string, network int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := strings.NewReplacer("BRIDGE", bridge(network), "SUBNET", subnet(network)).Replace(conflist)
	return os.WriteFile(filepath.Join(dir, "10-rkt-cri.conflist"), []byte(text), 0o644)
}
