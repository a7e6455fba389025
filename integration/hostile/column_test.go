package hostile

import (
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// column is a runtime that attacks are tried against.
type column struct {
	name    string
	runtime string
	shims   string // directory of its shim, if that is not containerd's
	runc    string // directory of its runc
	role    role
}

// role is the purpose of a column.
type role int

const (
	ours   role = iota // no attack may succeed
	oracle             // successes are reported
	proof              // an older release: the attacks on it must succeed
)

// Names of columns that prove attacks.
const (
	runcRC6     = "runc 1.0.0-rc6"
	runcRC94    = "runc 1.0.0-rc94"
	runc111     = "runc 1.1.1"
	nativeOld   = "native " + earlier
	nspawnOld   = "nspawn " + earlier
	ociOld      = "oci " + earlier
	currentRunc = "runc"
)

// columns are those of this run: hosted, or that of machines.
var columns = func() []*column {
	if machines.Only() {
		return []*column{{name: "kvm", runtime: machines.Runtime, shims: shimsDir, runc: runcDir}}
	}
	return hosted
}()

var hosted = []*column{
	{name: "native", runtime: "io.containerd.rkt.v1", shims: shimsDir, runc: runcDir},
	{name: "oci", runtime: "io.containerd.rkt-oci.v1", shims: shimsDir, runc: runcDir},
	{name: "nspawn", runtime: "io.containerd.rkt-nspawn.v1", shims: shimsDir, runc: runcDir},
	{name: currentRunc, runtime: "io.containerd.runc.v2", runc: runcDir, role: oracle},
	{name: runcRC6, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.0.0-rc6", role: proof},
	{name: runcRC94, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.0.0-rc94", role: proof},
	{name: runc111, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.1.1", role: proof},
	{name: nativeOld, runtime: "io.containerd.rkt.v1", shims: earlierDir, runc: runcDir, role: proof},
	{name: nspawnOld, runtime: "io.containerd.rkt-nspawn.v1", shims: earlierDir, runc: runcDir, role: proof},
	{name: ociOld, runtime: "io.containerd.rkt-oci.v1", shims: earlierDir, runc: oldRuncsDir + "/v1.1.1", role: proof},
}

// ofMachines reports whether each pod is a machine. All containers of an attack are then apps of one:
// the containers of a machine are neighbours, and machines share nothing.
func (c *column) ofMachines() bool { return c.runtime == machines.Runtime }

func (c *column) isRunc() bool { return c.runtime == "io.containerd.runc.v2" }

// usesRunc reports whether runc isolates the containers, by its own shim or by ours.
func (c *column) usesRunc() bool { return c.isRunc() || c.runtime == "io.containerd.rkt-oci.v1" }

// madeByInit reports whether the stage1 has two ways of making a process, between which a client can choose.
func (c *column) madeByInit() bool { return c.shims == shimsDir && !c.usesRunc() && !c.ofMachines() }

// unavailable returns the reason why a column cannot be tried here.
func (c *column) unavailable() string {
	if c.runtime == "io.containerd.rkt-nspawn.v1" && !present("systemd-nspawn") {
		return "systemd-nspawn, of Debian's systemd-container, is not installed"
	}
	if c.shims == earlierDir {
		if _, err := os.Stat(earlierDir); err != nil {
			return "the repository's history is not there"
		}
	}
	return ""
}
