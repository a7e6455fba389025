package documents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// Paths in the enclosure.
const (
	installed = "/opt/local"  // mounted at /usr/local
	source    = "/opt/source" // the documents, contrib/ and scripts/
	imagesDir = "/opt/images" // the program of the pause image
)

// All tests of the package run in the enclosure, also those that need no node.
func TestMain(m *testing.M) {
	enclosure.Tests{Name: "documents", Missing: missing, Fill: fill, Run: runTests}.Main(m)
}

func missing() string {
	if os.Getuid() != 0 {
		return "containers need root"
	}
	if enclosure.InGuest() {
		return "a page needs a machine without containerd"
	}
	if bin, err := binaries.Built(""); err == nil {
		if kvm := filepath.Join(bin, "stage1/kvm"); exists(kvm) {
			return "the pages show what make build makes, and make kvm has made " + kvm
		}
	}
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		return "the pods' network is made of Debian's containernetworking-plugins (make deps): " + err.Error()
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fill installs the runtime, containerd and its clients below the directory that becomes
// /usr/local.
func fill(ctx context.Context, e enclosure.Enclosure) error {
	bin, err := binaries.Built("")
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "../../scripts/install", bin, e.Path(installed)).CombinedOutput(); err != nil {
		return fmt.Errorf("install: %w: %s", err, out)
	}
	containerd, err := binaries.Containerd(ctx, os.Stderr)
	if err != nil {
		return err
	}
	programs := installed + "/bin"
	copies := []enclosure.Copy{{From: containerd + "/.", To: programs}}
	clients := []func() (string, error){
		func() (string, error) { return binaries.Nerdctl(ctx, os.Stderr) },
		func() (string, error) { return binaries.CRICtl(ctx, os.Stderr) },
	}
	for _, client := range clients {
		path, err := client()
		if errors.Is(err, exec.ErrNotFound) {
			continue // the pages that need it are skipped
		}
		if err != nil {
			return err
		}
		copies = append(copies, enclosure.Copy{From: path, To: programs})
	}
	for _, dir := range []string{source, imagesDir} {
		if err := os.MkdirAll(e.Path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"README.md", "VERSION", "docs", "contrib", "scripts"} {
		copies = append(copies, enclosure.Copy{From: "../../" + name, To: source})
	}
	copies = append(copies, enclosure.Copy{From: "testdata/systemctl", To: programs})
	if err := e.Fill(ctx, copies...); err != nil {
		return err
	}
	_, err = binaries.Program(ctx, e.Path(imagesDir), "cri/pause")
	return err
}

// firstPID is the least number of a process of a page, so that process ids have four digits.
const firstPID = "4000"

// runTests runs inside. It covers the directories that the pages use and the enclosure does not
// cover, and serves the images.
func runTests(m *testing.M) (code int, err error) {
	if err := unix.Mount(installed, "/usr/local", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return 1, fmt.Errorf("cover /usr/local: %w", err)
	}
	if err := unix.Mount("root", "/root", "tmpfs", 0, "mode=700"); err != nil {
		return 1, fmt.Errorf("cover /root: %w", err)
	}
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(firstPID), 0); err != nil {
		return 1, err
	}
	if err := errors.Join(os.MkdirAll("/opt/cni", 0o755), os.Symlink("/usr/lib/cni", "/opt/cni/bin")); err != nil {
		return 1, err
	}
	images, err := pageImages()
	if err != nil {
		return 1, err
	}
	proxy, err := registry.Serve(images)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, proxy.Close()) }()
	environment, err := proxy.Environment("/opt/registry.pem")
	if err != nil {
		return 1, err
	}
	nodeEnvironment = append([]string{
		"HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "NO_PROXY=127.0.0.1,localhost",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}, environment...)
	return m.Run(), nil
}

// nodeEnvironment is the environment of the commands of pages, and of containerd.
var nodeEnvironment []string

// pageImages returns a registry with the images that pages name.
func pageImages() (*registry.Registry, error) {
	files, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	pauseImage, err := node.Pause(filepath.Join(imagesDir, "pause"))
	if err != nil {
		return nil, err
	}
	busybox := image.Image{Name: "registry-1.docker.io/library/busybox:latest", Layers: [][]image.File{files}}
	busybox.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	busybox.Config.Cmd = []string{"sh"}
	r := registry.New()
	for _, img := range []image.Image{busybox, pauseImage} {
		if err := r.Add(img, ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// etc are the directories of /etc that pages write.
var etc = []string{"/etc/containerd", "/etc/containerd-shim-rkt", "/etc/cni", "/etc/nerdctl", "/etc/crictl.yaml"}

// startNode makes a node with nothing on it but a running containerd.
func startNode(t *testing.T) {
	t.Helper()
	for _, path := range etc {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"/etc/containerd/conf.d", "/etc/cni/net.d"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/etc/containerd/config.toml", []byte(containerdConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := node.WriteNetwork("/etc/cni/net.d", 0); err != nil {
		t.Fatal(err)
	}
	command(t, "systemctl start containerd")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", command(t, "grep -v 'level=debug\\|loading plugin' /run/containerd.log | tail -n 15"))
		}
		command(t, "systemctl stop containerd; rm -rf /var/lib/containerd /var/lib/rkt /var/lib/nerdctl /run/containerd /run/containerd.log")
	})
}

// containerdConfig is the least configuration that a page can rely on. A pod's OOM score is at
// least that of containerd, because a lower one needs CAP_SYS_RESOURCE, which a machine that
// runs tests may lack.
const containerdConfig = `version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
oom_score = 0
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
]

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
`

// command executes a command outside of any page and returns its output.
func command(t *testing.T, line string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Env, cmd.Dir = nodeEnvironment, "/root"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// expectNothingLeft fails the test for each container and pod that a page has not removed.
func expectNothingLeft(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{"default", "k8s.io"} {
		if left := command(t, "ctr -n "+namespace+" containers list -q 2>/dev/null"); left != "" {
			t.Errorf("the page leaves containers in the namespace %s: %s", namespace, left)
		}
	}
	if left := command(t, "rktctl list --output json"); left != "[]" {
		t.Errorf("the page leaves pods: %s", left)
	}
}
