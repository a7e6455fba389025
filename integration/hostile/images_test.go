package hostile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/containerd/containerd/v2/pkg/oci"
)

// CVE-2026-41579, and crun's GHSA-7vwr-4279-7gq5: an image whose /dev pointed out of it made
// the runtime remove files called ptmx, and make links, in a directory of the host.
func TestAnImageWhoseDirectoriesAreLinksTouchesNothingOfTheHosts(t *testing.T) {
	var modes []mode
	for _, link := range []string{"dev-is-a-link", "dev-is-a-relative-link", "run-is-a-link"} {
		m := mode{name: link, try: func(l *lab) {
			l.once(func() {
				// Without a mount on /dev, the image's /dev is used.
				_ = l.victim(spec{image: link, args: []string{"/bin/attacker", "look"},
					opts: []oci.SpecOpts{oci.WithoutMounts("/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"),
						oci.WithMounts([]specs.Mount{mount("tmpfs", "tmpfs", "/run/x", "nosuid"), bind(l.volume("v"), "/dev/deeper/x")})}})
			})
		}}
		if m.proofs = []string{runc111}; link == "run-is-a-link" {
			m.proofs, m.unproved = nil, "no release is known that follows it out; /dev shows that the links of images are met"
		}
		modes = append(modes, m)
	}
	hostile(t, attack{classes: "CVE-2026-41579, GHSA-7vwr-4279-7gq5", name: "an image's /dev or /run is a link to a directory of the host's", modes: modes})
}

// CVE-2021-41103, and CVE-2024-25621: every user of the host could enter directories of
// containerd that contain programs with set-id bits. Stage1 images have such programs, too.
func TestNobodyOnTheHostRunsSetIDProgramsOfStage1Images(t *testing.T) {
	hostile(t, attack{classes: "CVE-2021-41103, CVE-2024-25621", name: "somebody on the host looks for set-id programs in images", modes: []mode{
		{name: "stage1 images", proofs: []string{nativeOld}, notFor: func(c *column) string {
			if c.isRunc() {
				return "it has no stage1 images"
			}
			return ""
		}, try: func(l *lab) {
			l.importSetID()
			_ = l.victim(bystander()) // so that a pod and its image exist
			l.once(func() { l.searchAsNobody(l.dataDir()) })
		}},
		{name: "containers' files", unproved: "containerd 1.5.6 is needed", try: func(l *lab) {
			l.attacker(spec{image: plainImage, args: []string{"/bin/sh", "-c", "cp /bin/attacker /root/set-id; chmod 4755 /root/set-id; cp /root/set-id /tmp; exec /bin/attacker sleep"}})
			l.once(func() { l.searchAsNobody(l.daemon.Dir()) })
		}},
	}})
}

// importSetID imports a stage1 image with a program that would run as root.
func (l *lab) importSetID() {
	l.t.Helper()
	dir := filepath.Join(l.t.TempDir(), "stage1")
	if out, err := exec.Command("cp", "-a", filepath.Join(l.shims, "stage1/native"), dir).CombinedOutput(); err != nil {
		l.t.Fatalf("copy a stage1: %v: %s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(programsDir, "attacker"))
	if err != nil {
		l.t.Fatal(err)
	}
	setID := filepath.Join(dir, "rootfs/set-id")
	if err := os.WriteFile(setID, program, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Chmod(setID, 0o755|os.ModeSetuid); err != nil {
		l.t.Fatal(err)
	}
	c := exec.Command(filepath.Join(l.shims, "rktctl"), "stage1", "import", dir)
	c.Env = append(os.Environ(), "RKT_DATA_DIR="+l.dataDir())
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("import a stage1: %v: %s", err, out)
	}
}

// searchAsNobody does the attack of an unprivileged user of the host.
func (l *lab) searchAsNobody(dir string) {
	l.t.Helper()
	const nobody = 65534
	c := exec.Command(filepath.Join(programsDir, "attacker"), "search", dir)
	c.Env = []string{"SECRET=" + l.canary.path(secretFile), "STICKY=" + l.canary.path(stickyDir)}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stderr bytes.Buffer
	c.Stdout, c.Stderr = &l.said, &stderr
	if err := c.Run(); err != nil {
		l.t.Fatalf("search as nobody: %v: %s", err, stderr.String())
	}
}
