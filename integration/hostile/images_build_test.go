package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Images of the attackers and their victims. All have the attacker at /bin/attacker,
// busybox, and the mount points /vol and /p.
const (
	plainImage = "plain"
	// dynamicImage contains libraries of the machine with which a runc is linked.
	dynamicImage = "dynamic"
	// again is the path of a script whose interpreter is /proc/self/exe.
	again = "/bin/again"
)

// linkImages are images in which a directory is a link, on which a runtime makes a mount or in
// which it makes files. The target is below /vol, or the directory of the canary.
func (n *node) linkImages() map[string][2]string {
	return map[string][2]string{
		"proc-is-a-link":          {"proc", "/vol/proc"},
		"proc-is-a-relative-link": {"proc", "p"},
		"sys-is-a-link":           {"sys", "/vol/sys"},
		"dev-is-a-link":           {"dev", n.canary.path(hostDir)},
		"dev-is-a-relative-link":  {"dev", "../../../../../../../../../../../.." + n.canary.path(hostDir)},
		"run-is-a-link":           {"run", n.canary.path(hostDir)},
	}
}

// images returns the images of a node.
func (n *node) images() ([]image.Image, error) {
	base, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(filepath.Join(programsDir, "attacker"))
	if err != nil {
		return nil, err
	}
	base = append(base,
		image.File{Name: "bin/attacker", Mode: 0o755, Content: program},
		image.File{Name: again[1:], Mode: 0o755, Content: []byte("#!/proc/self/exe\n")},
		image.File{Name: "vol/", Mode: 0o755},
		image.File{Name: "p/", Mode: 0o755},
	)
	libraries, err := libraries(filepath.Join(runcDir, "runc"))
	if err != nil {
		return nil, err
	}
	all := []image.Image{n.imageOf(plainImage, base), n.imageOf(dynamicImage, append(slices.Clone(base), libraries...))}
	for name, link := range n.linkImages() {
		all = append(all, n.imageOf(name, withLink(base, link[0], link[1])))
	}
	return all, nil
}

// libraries are the files that a program is linked with, among them its interpreter.
func libraries(program string) (files []image.File, err error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	for _, field := range strings.Fields(string(out)) {
		if !strings.HasPrefix(field, "/") {
			continue
		}
		content, err := os.ReadFile(field)
		if err != nil {
			return nil, err
		}
		files = append(files, image.File{Name: field[1:], Mode: 0o755, Content: content})
	}
	return files, nil
}

func (n *node) imageOf(name string, files []image.File) image.Image {
	secrets, sticky := n.canary.path(secretFile), n.canary.path(stickyDir)
	if n.ofMachines() {
		secrets, sticky = secrets+":"+machineSecret, sticky+":"+filepath.Dir(machineSecret)
	}
	img := image.Image{Name: reference(name), Layers: [][]image.File{files}}
	img.Config.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SECRET=" + secrets,
		"STICKY=" + sticky,
		nodeVariable + "=" + n.short,
	}
	return img
}

// nodeVariable is in the environment of all processes of a node's containers. The suite finds
// them by it in any cgroup or namespace.
const nodeVariable = "HOSTILE_NODE"

// machineSecret is a file of a machine's own root, which no container has. It lists the modules that
// the agent has loaded.
const machineSecret = "/modules/order"

func reference(image string) string { return "hostile.test/" + image + ":latest" }

// withLink replaces a directory of an image by a link.
func withLink(files []image.File, dir, target string) []image.File {
	kept := slices.DeleteFunc(slices.Clone(files), func(f image.File) bool { return strings.HasPrefix(f.Name, dir+"/") })
	return append(kept, image.File{Name: dir, Link: target})
}
