package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

const (
	packageName   = "containerd-shim-rkt"
	installedShim = "/usr/bin/containerd-shim-rkt-v1"
	// dataDir has imported images. Only dpkg can remove it with the package.
	dataDir = "/var/lib/rkt"
	// rpmDatabase is that of other distributions: Debian's rpm has one for each user.
	rpmDatabase = "/var/lib/rpm"
)

// format is a kind of package, with the command lines of the program that installs it.
type format struct {
	name    string
	files   string   // pattern of a package's file name, after the package's name
	install []string // also of an older version; the file follows
	remove  []string
	purge   []string // remove, with the data; nil: no such thing
	verify  []string // prints changed files
	status  []string // prints the state of the package
	removed string   // the state after remove
}

var formats = []format{
	{
		name:    "deb",
		files:   "_*.deb",
		install: []string{"dpkg", "--install"},
		remove:  []string{"dpkg", "--remove", packageName},
		purge:   []string{"dpkg", "--purge", packageName},
		verify:  []string{"dpkg", "--verify", packageName},
		status:  []string{"dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", packageName},
		removed: "rc",
	},
	// Debian's rpm does not know that its /bin/sh is there (--nodeps), and warns of Debian
	// (--force-debian).
	{
		name:    "rpm",
		files:   "-[0-9]*.rpm",
		install: []string{"rpm", "--dbpath", rpmDatabase, "--upgrade", "--oldpackage", "--nodeps", "--force-debian"},
		remove:  []string{"rpm", "--dbpath", rpmDatabase, "--erase", "--force-debian", packageName},
		verify:  []string{"rpm", "--dbpath", rpmDatabase, "--verify", "--nodeps", packageName},
		status:  []string{"rpm", "--dbpath", rpmDatabase, "--query", packageName},
		removed: "package " + packageName + " is not installed",
	},
}

// eachFormat tests both kinds of packages, one after the other.
func eachFormat(t *testing.T, test func(*testing.T, *target)) {
	t.Helper()
	if os.Getenv("RKT_TEST_PACKAGES") == "" {
		t.Skip("installs a package, which is for the guest of make test-vm")
	}
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			m := &target{t: t, format: f}
			m.before = m.files()
			test(t, m)
		})
	}
}

// target is a machine on which the package may be installed: the guest.
type target struct {
	t *testing.T
	format
	before []string // the machine's files without the package
}

// files lists the machine's files where a package may leave something.
func (m *target) files() []string {
	return paths(m.t, []string{"/etc", "/opt", "/usr", "/var/lib", "/run/containerd"},
		"/var/lib/dpkg", rpmDatabase, "/var/lib/systemd", "/usr/lib/modules", "/etc/mtab", "/run/containerd/s")
}

// installs installs a version of the package, which may be an older one.
func (m *target) installs(version string) {
	m.t.Helper()
	run(m.t, nil, append(slices.Clone(m.install), m.file(packageName, version))...)
	m.has(version)
}

// file returns the path of a package.
func (m *target) file(name, version string) string {
	m.t.Helper()
	found, _ := filepath.Glob(filepath.Join(os.Getenv("RKT_TEST_PACKAGES"), version, name+m.format.files))
	if len(found) != 1 {
		m.t.Fatalf("there are the packages %q of %s", found, version)
	}
	return found[0]
}

// has expects the shim to be of a version.
func (m *target) has(version string) {
	m.t.Helper()
	if says := run(m.t, nil, installedShim, "-v"); !strings.Contains(says, version) {
		m.t.Errorf("%s is installed, and the shim says %s", version, says)
	}
}

// removes removes the package, and expects its files to be gone, except the shim.
func (m *target) removes() (out string) {
	m.t.Helper()
	out = run(m.t, nil, m.remove...)
	status, _ := exec.CommandContext(m.t.Context(), m.status[0], m.status[1:]...).Output()
	if got := strings.TrimSpace(string(status)); got != m.removed && got != "" {
		m.t.Errorf("the package's state is %q", got)
	}
	if _, err := os.Stat("/usr/bin/rktctl"); err == nil {
		m.t.Error("the files of the package are still there")
	}
	return out
}

// purges removes what is left of the package: its data, and the rest of it.
func (m *target) purges() {
	m.t.Helper()
	if m.purge != nil {
		run(m.t, nil, m.purge...)
		return
	}
	if _, err := os.Stat("/usr/bin/rktctl"); err == nil {
		m.removes()
	}
}

// node starts a containerd with the package's drop-in.
func (m *target) node() *node {
	m.t.Helper()
	dir := shortDir(m.t)
	dropIns := filepath.Join(dir, "conf.d")
	if err := os.Mkdir(dropIns, 0o755); err != nil {
		m.t.Fatal(err)
	}
	run(m.t, nil, "cp", "/usr/share/containerd-shim-rkt/contrib/containerd/2.x/rkt.toml", dropIns)
	return startNode(m.t, options{dir: dir, bin: "/usr/bin", dropIns: dropIns})
}

// nothingIsLeft waits until the machine is as before. Data that the package manager cannot remove
// is removed, as docs/install.md tells its user.
func (m *target) nothingIsLeft() {
	m.t.Helper()
	if m.purge == nil {
		wait.Observe(m.t, "no pod is left", func() (bool, string) {
			left, _ := filepath.Glob(dataDir + "/pods/*/*")
			return len(left) == 0, strings.Join(left, " ")
		})
		if err := os.RemoveAll(dataDir); err != nil {
			m.t.Error(err)
		}
	}
	awaitSame(m.t, "nothing is left of the package", m.before, m.files)
	if out := run(m.t, nil, "dpkg-divert", "--list", "*"+packageName+"*"); out != "" {
		m.t.Errorf("diversions are left: %s", out)
	}
}

func TestAPackageIsInstalledUpgradedRolledBackAndRemovedUnderAPod(t *testing.T) {
	eachFormat(t, func(t *testing.T, m *target) {
		m.installs("v0.1.0")
		n := m.node()
		first, container := n.must("rkt")
		n.works("installed", container)

		m.installs("v0.1.1")
		n.works("upgraded", container)
		n.works("a new container of the pod", first.start())
		second, other := n.must("rkt")
		n.works("a new pod", other)

		m.installs("v0.1.0") // rolled back
		n.works("rolled back", container)
		n.works("the pod of the newer version", other)
		n.works("its new container", second.start())
		second.remove()

		if out := m.removes(); !strings.Contains(out, "stays until the last of them is deleted") {
			t.Errorf("the removal said %s", out)
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
		m.purges()
		m.nothingIsLeft()
	})
}

// containerd executes `delete` when a server has died, long after the package was removed.
func TestARemovedPackageLeavesDeleteToContainerd(t *testing.T) {
	eachFormat(t, func(t *testing.T, m *target) {
		m.installs("v0.1.0")
		n := m.node()
		p, container := n.must("rkt")
		m.purges() // the data directory goes with the pod
		n.works("purged", container)
		n.restart()
		n.works("purged, and containerd restarted", container)
		p.kill()
		m.nothingIsLeft()
		p.remove()
	})
}

// A reinstallation takes over from the kept shim.
func TestAPackageThatIsInstalledAgainUnderAPodKeepsNothing(t *testing.T) {
	eachFormat(t, func(t *testing.T, m *target) {
		m.installs("v0.1.0")
		n := m.node()
		p, container := n.must("rkt")
		m.removes()
		m.installs("v0.1.1")
		if out := run(t, nil, m.verify...); out != "" {
			t.Errorf("there are changed files: %s", out)
		}
		n.works("installed again", container)
		p.remove()
		if _, err := os.Stat(installedShim); err != nil {
			t.Error(err)
		}
		m.purges()
		m.nothingIsLeft()
	})
}
