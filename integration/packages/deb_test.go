package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// deb is a machine on which the package may be installed: the guest.
type deb struct {
	t      *testing.T
	before []string // the machine's files without the package
}

const installedShim = "/usr/bin/containerd-shim-rkt-v1"

func newDeb(t *testing.T) *deb {
	t.Helper()
	if os.Getenv("RKT_TEST_PACKAGES") == "" {
		t.Skip("installs a package, which is for the guest of make test-vm")
	}
	d := &deb{t: t}
	d.before = d.files()
	return d
}

// files lists the machine's files where a package may leave something.
func (d *deb) files() []string {
	return paths(d.t, []string{"/etc", "/opt", "/usr", "/var/lib", "/run/containerd"},
		"/var/lib/dpkg", "/var/lib/systemd", "/usr/lib/modules", "/etc/mtab", "/run/containerd/s")
}

// install installs a version of the package, which may be an older one.
func (d *deb) install(version string) {
	d.t.Helper()
	found, _ := filepath.Glob(filepath.Join(os.Getenv("RKT_TEST_PACKAGES"), version, "*.deb"))
	if len(found) != 1 {
		d.t.Fatalf("there are the packages %q of %s", found, version)
	}
	run(d.t, nil, "dpkg", "--install", found[0])
	if says := run(d.t, nil, installedShim, "-v"); !strings.Contains(says, version) {
		d.t.Errorf("%s is installed, and the shim says %s", version, says)
	}
}

// status is dpkg's of the package.
func (d *deb) status() string {
	out, _ := exec.CommandContext(d.t.Context(), "dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", "containerd-shim-rkt").Output()
	return strings.TrimSpace(string(out))
}

// node starts a containerd with the package's drop-in.
func (d *deb) node() *node {
	d.t.Helper()
	dir := shortDir(d.t)
	dropIns := filepath.Join(dir, "conf.d")
	if err := os.Mkdir(dropIns, 0o755); err != nil {
		d.t.Fatal(err)
	}
	run(d.t, nil, "cp", "/usr/share/containerd-shim-rkt/contrib/containerd/2.x/rkt.toml", dropIns)
	return startNode(d.t, options{dir: dir, bin: "/usr/bin", dropIns: dropIns})
}

// purged removes the package's data, and expects the machine to be as before.
func (d *deb) purged() {
	d.t.Helper()
	run(d.t, nil, "dpkg", "--purge", "containerd-shim-rkt")
	awaitSame(d.t, "nothing is left of the package", d.before, d.files)
	if out := run(d.t, nil, "dpkg-divert", "--list", "*containerd-shim-rkt*"); out != "" {
		d.t.Errorf("diversions are left: %s", out)
	}
}

func TestADebIsInstalledUpgradedRolledBackAndRemovedUnderAPod(t *testing.T) {
	d := newDeb(t)
	d.install("v0.1.0")
	n := d.node()
	first, container := n.must("rkt")
	n.works("installed", container)

	d.install("v0.1.1")
	n.works("upgraded", container)
	n.works("a new container of the pod", first.start())
	second, other := n.must("rkt")
	n.works("a new pod", other)

	d.install("v0.1.0") // rolled back
	n.works("rolled back", container)
	n.works("the pod of the newer version", other)
	n.works("its new container", second.start())
	second.remove()

	if out := run(t, nil, "dpkg", "--remove", "containerd-shim-rkt"); !strings.Contains(out, "stays until the last of them is deleted") {
		t.Errorf("dpkg said %s", out)
	}
	if d.status() != "" && !strings.HasPrefix(d.status(), "rc") {
		t.Errorf("dpkg's status is %q", d.status())
	}
	n.works("removed", container)
	n.works("its new container", first.start())
	if p, err := n.run("rkt"); err == nil || !strings.Contains(err.Error(), "stage1") {
		t.Errorf("a new pod: %v, %v", p, err)
	}
	first.remove()
	wait.Observe(t, "the shim goes after the last pod", func() (bool, string) {
		left, _ := filepath.Glob("/usr/bin/*shim-rkt*")
		kept, _ := filepath.Glob("/usr/libexec/containerd-shim-rkt*")
		return len(left)+len(kept) == 0, strings.Join(append(left, kept...), " ")
	})
	d.purged()
}

// containerd executes `delete` when a server has died, long after the package was removed.
func TestARemovedDebLeavesDeleteToContainerd(t *testing.T) {
	d := newDeb(t)
	d.install("v0.1.0")
	n := d.node()
	p, container := n.must("rkt")
	run(t, nil, "dpkg", "--purge", "containerd-shim-rkt") // the data directory goes with the pod
	n.works("purged", container)
	n.restart()
	n.works("purged, and containerd restarted", container)
	p.kill()
	awaitSame(t, "nothing is left of pod and package", d.before, d.files)
	p.remove()
}

// A reinstallation takes over from the kept shim.
func TestADebThatIsInstalledAgainUnderAPodKeepsNothing(t *testing.T) {
	d := newDeb(t)
	d.install("v0.1.0")
	n := d.node()
	p, container := n.must("rkt")
	run(t, nil, "dpkg", "--remove", "containerd-shim-rkt")
	d.install("v0.1.1")
	if out := run(t, nil, "dpkg", "--verify", "containerd-shim-rkt"); out != "" {
		t.Errorf("dpkg finds changed files: %s", out)
	}
	n.works("installed again", container)
	p.remove()
	if _, err := os.Stat(installedShim); err != nil {
		t.Error(err)
	}
	d.purged()
}
