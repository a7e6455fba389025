package node

import (
	"os"
	"path/filepath"
	"strings"
)

// Bridge is the pods' network interface on the node, and Subnet their addresses.
const (
	Bridge = "rkt-cri0"
	Subnet = "10.254.77.0/24"
)

// conflist is the pods' network: a bridge that leads nowhere but to the node, and
// host ports.
const conflist = `{
  "cniVersion": "1.0.0",
  "name": "rkt-cri",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "BRIDGE",
      "isGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "DIR/addresses",
        "ranges": [[{"subnet": "SUBNET"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// writeNetwork writes the configuration of the pods' network.
func writeNetwork(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := strings.NewReplacer("BRIDGE", Bridge, "SUBNET", Subnet, "DIR", dir).Replace(conflist)
	return os.WriteFile(filepath.Join(dir, "10-rkt-cri.conflist"), []byte(text), 0o644)
}
