package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// containerdSuite is containerd's own suite for its CRI plugin.
func containerdSuite() suite {
	return suite{
		program:    binaries.CRISuite,
		programs:   []string{"crisuites/nginx"},
		images:     containerdImages,
		prepare:    prepareContainerd,
		command:    containerdCommand,
		report:     readGoTest,
		results:    outputFile,
		exceptions: containerdExceptions(),
	}
}

func containerdCommand(n *node.Node, handler string, o options) []string {
	return []string{
		filepath.Join(suiteDir, "cri.test"),
		"-cri-endpoint=" + n.Endpoint(),
		"-runtime-handler=" + handler,
		"-containerd-bin=containerd",
		"-build-dir=" + wrappedDir,
		"-test.v",
		"-test.run=" + o.focus,
		"-test.skip=" + strings.Join(withoutMeaning(), "|"),
		fmt.Sprintf("-test.timeout=%s", o.timeout),
	}
}

// withoutMeaning lists tests that cannot run here: they need a docker daemon, releases of
// containerd or images by digest from the network, an image whose program is not available,
// one of the suite's own CNI plugins, or a shim that fails on demand.
func withoutMeaning() []string {
	return []string{
		"^TestImageLoad$", "^TestIssue10467$", "^TestUpgrade", "^TestContainerConsumedStats$", "^TestIssue10244LoopbackV2$", "^TestCRIImagePullTimeout$",
		"^TestIssue7496", "^TestRunPodSandboxWith(Setup|Shim)", "^TestRunPodSandboxAndTeardownCNISlow$", "^TestContainerdRestartSandboxRecover$",
		"^TestSandboxStopWithNilCNIResult$", "^TestPodSandboxController_ShouldBackoffExitEventWhenFail$",
	}
}

// nriSocket is a constant of the suite.
const nriSocket = "/var/run/nri-test.sock"

// The suite starts daemons of its own, by a wrapper of containerd. The wrapper adds the
// setting that pods get no lower OOM score than the daemon, because a lower one needs
// CAP_SYS_RESOURCE. In a test of our shim, its binary is installed under the name of
// runc's shim, as an administrator could do.
const (
	wrappedDir  = "/run/wrapped"
	restriction = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nrestrict_oom_score_adj = true\n"
	wrapper     = `#!/bin/sh
for a; do
	if [ "$before" = --config ] && ! grep -q ^imports "$a"; then
		{ echo 'imports = ["/run/wrapped/restriction.toml"]'; cat "$a"; } >"$a.new" && mv "$a.new" "$a"
	fi
	before=$a
done
exec /run/programs/containerd "$@"
`
)

// features is a runc that declares features. Only the suite itself executes it: it wants to
// know those of the runtime under test, and would otherwise skip tests of user namespaces.
const features = `#!/bin/sh
[ "$1" = features ] || exit 1
echo '{"linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": true}}}}'
`

func wrapDaemons(h node.Handler) error {
	if err := os.MkdirAll(wrappedDir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(wrappedDir+"/restriction.toml", []byte(restriction), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(wrappedDir+"/containerd", []byte(wrapper), 0o755); err != nil {
		return err
	}
	shim := shimsDir + "/containerd-shim-rkt-v1"
	if h.Runtime == runcRuntime {
		shim = programsDir + "/containerd-shim-runc-v2"
	} else if err := os.WriteFile(wrappedDir+"/runc", []byte(features), 0o755); err != nil {
		return err
	}
	return os.Symlink(shim, wrappedDir+"/containerd-shim-runc-v2")
}

// prepareContainerd makes files at paths that are fixed in the suite.
func prepareContainerd(o *node.Options, h node.Handler) error {
	if err := wrapDaemons(h); err != nil {
		return err
	}
	o.NRI, o.CommonSockets, o.DrainExecs = nriSocket, true, "10s"
	if err := os.MkdirAll("/var/lib/containerd-test", 0o711); err != nil {
		return err
	}
	if err := os.CopyFS("/opt/cni/bin", os.DirFS("/usr/lib/cni")); err != nil {
		return err
	}
	return node.WriteNetwork("/etc/cni/net.d", 0)
}

// containerdImages returns the images that the suite pulls, except those that it names by a
// digest and one whose program is not available.
func containerdImages() ([]image.Image, error) {
	busybox, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	nginx, err := program("nginx", "usr/sbin/nginx", 0o755)
	if err != nil {
		return nil, err
	}
	pause, err := program("pause", "pause", 0o755)
	if err != nil {
		return nil, err
	}
	busybox = append(busybox,
		image.File{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nsys:x:3:3:sys:/dev:/bin/false\n" +
			"www-data:x:33:33::/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
		image.File{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\ndaemon:x:1:\nsys:x:3:\nwheel:x:10:root\nwww-data:x:33:\nnogroup:x:65534:\n")},
	)
	volumes := func(paths ...string) ocispec.ImageConfig {
		c := ocispec.ImageConfig{Cmd: []string{"sh"}, Volumes: map[string]struct{}{}}
		for _, p := range paths {
			c.Volumes[p] = struct{}{}
		}
		return c
	}
	content := []byte("test_content\n")
	own := func(name string, config ocispec.ImageConfig, further ...image.File) image.Image {
		return image.Image{Name: "ghcr.io/containerd/" + name, Config: config, Layers: [][]image.File{busybox, further}}
	}
	return []image.Image{
		own("busybox:1.36", volumes(), image.File{Name: "name", Mode: 0o644, Content: []byte("busybox")}),
		own("alpine:3.14.0", volumes(), image.File{Name: "etc/os-release", Mode: 0o644, Content: []byte("Alpine Linux\n")},
			image.File{Name: "bin/sh", Link: "/bin/busybox"}),
		own("nginx:1.27.0", ocispec.ImageConfig{Cmd: []string{"/usr/sbin/nginx"}}, nginx),
		own("volume-copy-up:2.2", volumes("/test_dir", "C:/weird_test_dir", "/:colon_prefixed"),
			image.File{Name: "test_dir/test_file", Mode: 0o644, Content: content},
			image.File{Name: "C:/weird_test_dir/weird_test_file", Mode: 0o644, Content: content},
			image.File{Name: ":colon_prefixed/colon_prefixed_file", Mode: 0o644, Content: content}),
		own("volume-ownership:2.1", volumes("/test_dir"), image.File{Name: "test_dir/", Mode: 0o755, UID: 65534}),
		{Name: node.PauseImage, Config: ocispec.ImageConfig{Entrypoint: []string{"/pause"}, User: "65535:65535"}, Layers: [][]image.File{{pause}}},
	}, nil
}

// Lines in the output of `go test -v`.
var (
	beginLine  = regexp.MustCompile(`^=== RUN\s+(\S+)`)
	resultLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) `)
	saidLine   = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
)

// readGoTest reads the output of `go test -v`. If a test has no result, the suite has ended
// during that test.
func readGoTest(handler, file string) (report, error) {
	f, err := os.Open(file)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	r := report{handler: handler, specs: map[string]spec{}}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	said := ""
	for s.Scan() {
		line := s.Text()
		if m := beginLine.FindStringSubmatch(line); m != nil {
			r.specs[m[1]] = spec{failed, "the suite ended before the test did"}
			continue
		}
		if m := resultLine.FindStringSubmatch(line); m != nil {
			result := spec{outcome: map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[1]]}
			if result.outcome != passed {
				result.reason = said
			}
			r.specs[m[2]] = result
			continue
		}
		if m := saidLine.FindStringSubmatch(line); m != nil && strings.TrimSpace(m[1]) != "" {
			said = strings.TrimSpace(m[1])
		}
	}
	if len(r.specs) == 0 {
		return r, errors.Join(errors.New("no test ran"), s.Err())
	}
	return r, s.Err()
}

// containerdExceptions lists tests of features that need a pause container, and a test of data
// that containerd stores only for pods of the mode podsandbox.
func containerdExceptions() map[string]string {
	const pause = "it is about the pause container"
	return map[string]string{
		"rkt-shim TestKillShimPublishesTaskExitAndDeleteEvents": pause,
		"rkt-shim TestShutdownShimWhenPauseExitsBeforeWorkload": pause,
		"rkt-shim TestContainerdRestart":                        pause,
		"rkt-shim TestUpdatePodSandboxWithRestart":              "containerd does not remember a pod's resources without a pause container",
	}
}
