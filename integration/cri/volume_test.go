package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func volumes() section {
	return section{"Volumes and devices", []feature{
		{"directories, read-write and read-only", volumeDirectories},
		{"files, and what is made for a volume to be mounted on", volumeFiles},
		{"a symbolic link of the image below a volume's place", volumeSymlink},
		{"recursive read-only mounts", volumeRecursiveReadOnly},
		{"mount propagation: None", propagationNone},
		{"mount propagation: HostToContainer", propagationToContainer},
		{"mount propagation: Bidirectional", propagationBoth},
		{"image volumes", imageVolume},
		{"image volumes, part of one", imageVolumePart},
		{"devices", devices},
		{"CDI devices: nodes, mounts, environment, hooks", cdiDevices},
		{"CDI devices that an annotation asks for", cdiByAnnotation},
		{"an unknown CDI device is refused by its name", cdiUnknown},
	}}
}

// volume makes a directory of the node that is mounted in containers at /volume.
func volume(t *testing.T, p *pod) *runtimeapi.Mount {
	t.Helper()
	dir := filepath.Join(volumesDir, p.id)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return &runtimeapi.Mount{HostPath: dir, ContainerPath: "/volume"}
}

// mountBelow mounts a tmpfs with a file on a directory of a volume, for as long as
// the test runs.
func mountBelow(t *testing.T, v *runtimeapi.Mount, name string) {
	t.Helper()
	dir := filepath.Join(v.GetHostPath(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("below", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("below\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func volumeDirectories(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	ro := &runtimeapi.Mount{HostPath: v.GetHostPath(), ContainerPath: "/read/only", Readonly: true}
	out := p.output("a", sh("echo hello >/volume/f; cat /read/only/f; touch /read/only/g 2>&1; true"), mounted(v, ro))
	if !strings.Contains(out, "hello") || !strings.Contains(out, "Read-only file system") {
		t.Errorf("it wrote:\n%s", out)
	}
}

func volumeFiles(t *testing.T, c *column) {
	p := c.pod(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	at := func(path string) *runtimeapi.Mount { return &runtimeapi.Mount{HostPath: file, ContainerPath: path} }
	out := p.output("a", sh("cat /new/place /etc/group; echo more >>/new/place; readlink -f /etc/link"),
		mounted(at("/new/place"), at("/etc/group")))
	if !strings.HasPrefix(out, "hello\nhello\n") {
		t.Errorf("it wrote:\n%s", out)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "hello\nmore\n" {
		t.Errorf("on the node: %q, %v", b, err)
	}
	p.expectRefused("/no/such/file", sh("true"), mounted(&runtimeapi.Mount{HostPath: "/proc/no/such/file", ContainerPath: "/x"}))
}

func volumeSymlink(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	// The image has /bin/sh → busybox. A mount on a link is made on the link's target in the
	// container, never on the target on the node.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(v.GetHostPath(), link); err != nil {
		t.Fatal(err)
	}
	out := p.output("a", sh("touch /volume/f; cat /proc/mounts"), mounted(&runtimeapi.Mount{HostPath: link, ContainerPath: "/volume"}))
	if _, err := os.Stat(filepath.Join(v.GetHostPath(), "f")); err != nil {
		t.Errorf("%v; mounts:\n%s", err, out)
	}
}

func volumeRecursiveReadOnly(t *testing.T, c *column) {
	if !c.features(t).GetRecursiveReadOnlyMounts() {
		c.skip(t, "the runtime does not declare recursive read-only mounts")
	}
	p := c.pod(t)
	v := volume(t, p)
	mountBelow(t, v, "below")
	v.Readonly, v.RecursiveReadOnly = true, true
	out := p.output("a", sh("cat /volume/below/f; touch /volume/x 2>&1; touch /volume/below/x 2>&1; true"), mounted(v))
	if strings.Count(out, "Read-only file system") != 2 {
		t.Errorf("it wrote:\n%s", out)
	}
	// A mount that is only ro, and not rro, is read-only at its top only.
	v.RecursiveReadOnly = false
	out = p.output("b", sh("touch /volume/x 2>&1; touch /volume/below/x 2>&1; true"), mounted(v))
	if strings.Count(out, "Read-only file system") != 1 {
		t.Errorf("without recursion:\n%s", out)
	}
}

func propagationNone(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	one := p.run("a", forever(), mounted(v))
	mountBelow(t, v, "below")
	if code, out, _ := one.execCode("ls", "/volume/below/f"); code == 0 {
		t.Errorf("it sees what was mounted later: %s", out)
	}
}

func propagationToContainer(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	v.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	one := p.run("a", forever(), mounted(v))
	mountBelow(t, v, "below")
	if out := one.exec("cat", "/volume/below/f"); out != "below\n" {
		t.Errorf("it reads %q", out)
	}
}

func propagationBoth(t *testing.T, c *column) {
	p := c.pod(t, privilegedPodConfig)
	v := volume(t, p)
	v.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	one := p.run("a", forever(), privilegedConfig, mounted(v))
	two := p.run("b", forever(), privilegedConfig, mounted(v))
	one.exec("sh", "-c", "mkdir /volume/inside && mount -t tmpfs x /volume/inside && echo inside >/volume/inside/f")
	file := filepath.Join(v.GetHostPath(), "inside/f")
	if b, err := os.ReadFile(file); err != nil || string(b) != "inside\n" {
		t.Errorf("on the node: %q, %v", b, err)
	}
	if out := two.exec("cat", "/volume/inside/f"); out != "inside\n" {
		t.Errorf("in the other container: %q", out)
	}
	one.exec("umount", "/volume/inside")
	if _, err := os.Stat(file); err == nil {
		t.Error("it is still mounted on the node")
	}
}

func imageMount(part string) *runtimeapi.Mount {
	return &runtimeapi.Mount{ContainerPath: "/image", Image: &runtimeapi.ImageSpec{Image: volumeImage}, ImageSubPath: part, Readonly: true}
}

func imageVolume(t *testing.T, c *column) {
	p := c.pod(t)
	out := p.output("a", sh("cat /image/data/greeting; touch /image/x 2>&1; true"), mounted(imageMount("")))
	if !strings.Contains(out, "hello from an image") || !strings.Contains(out, "Read-only file system") {
		t.Errorf("it wrote:\n%s", out)
	}
}

func imageVolumePart(t *testing.T, c *column) {
	p := c.pod(t)
	if out := p.output("a", sh("cat /image/down"), mounted(imageMount("data/deep"))); out != "deep\n" {
		t.Errorf("it wrote:\n%s", out)
	}
	p.expectRefused("no/such/part", sh("true"), mounted(imageMount("no/such/part")))
}

func devices(t *testing.T, c *column) {
	p := c.pod(t)
	device := func(permissions string) func(*runtimeapi.ContainerConfig) {
		return func(config *runtimeapi.ContainerConfig) {
			config.Devices = []*runtimeapi.Device{{HostPath: "/dev/fuse", ContainerPath: "/dev/my/device", Permissions: permissions}}
		}
	}
	p.output("a", sh("[ -c /dev/my/device ] && : </dev/my/device && : >/dev/my/device"), device("rwm"))
	p.run("b", sh("[ -c /dev/my/device ] && : </dev/my/device && : >/dev/my/device"), device("r")).expectExit(1)
	p.run("c", sh("mknod /tmp/x c 10 229 && : </tmp/x")).expectExit(1)
	p.output("d", sh("for d in null zero full random urandom tty ptmx; do [ -c /dev/$d ] || exit 1; done; echo x >/dev/null; head -c1 /dev/zero | wc -c"))
}

const cdiSpec = `{
  "cdiVersion": "0.6.0",
  "kind": "rkt.test/device",
  "devices": [{
    "name": "one",
    "containerEdits": {
      "env": ["CDI_DEVICE=one"],
      "deviceNodes": [{"path": "/dev/cdi-one", "hostPath": "/dev/fuse", "permissions": "rw"}],
      "mounts": [{"hostPath": "DIR", "containerPath": "/cdi", "options": ["ro", "nosuid", "nodev", "bind"]}],
      "hooks": [{"hookName": "createContainer", "path": "/bin/sh", "args": ["sh", "-c", "cat >DIR/state"]}]
    }
  }]
}`

const cdiDevice = "rkt.test/device=one"

// writeCDI writes a specification of a device to the node's directory of CDI. It returns the
// directory that the device mounts, and to which its hook writes.
func (c *column) writeCDI(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	specs := filepath.Join(c.node.Dir(), "cdi")
	if err := os.MkdirAll(specs, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(specs, "rkt.json")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(cdiSpec, "DIR", dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	return dir
}

// expectCDI runs a container that edit gives the device, and expects everything of it.
func (p *pod) expectCDI(dir string, edit func(*runtimeapi.ContainerConfig)) {
	p.t.Helper()
	out := p.output("a", sh("echo $CDI_DEVICE; [ -c /dev/cdi-one ] && : </dev/cdi-one && echo device; ls /cdi; touch /cdi/f 2>/dev/null || echo read-only"), edit)
	if out != "one\ndevice\nstate\nread-only\n" {
		p.t.Errorf("it wrote:\n%s", out)
	}
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil || !strings.Contains(string(state), fmt.Sprintf("%q", "creating")) && !strings.Contains(string(state), fmt.Sprintf("%q", "created")) {
		p.t.Errorf("the hook got %q, %v", state, err)
	}
}

func cdiDevices(t *testing.T, c *column) {
	dir := c.writeCDI(t)
	c.pod(t).expectCDI(dir, func(config *runtimeapi.ContainerConfig) {
		config.CDIDevices = []*runtimeapi.CDIDevice{{Name: cdiDevice}}
	})
}

func cdiByAnnotation(t *testing.T, c *column) {
	dir := c.writeCDI(t)
	c.pod(t).expectCDI(dir, func(config *runtimeapi.ContainerConfig) {
		config.Annotations = map[string]string{"cdi.k8s.io/rkt": cdiDevice}
	})
}

// The node has no such device, of a kind that it has, or of another one. The next container of
// the pod is not concerned.
func cdiUnknown(t *testing.T, c *column) {
	dir := c.writeCDI(t)
	p := c.pod(t)
	for _, name := range []string{"rkt.test/device=two", "rkt.test/other=one"} {
		p.expectRefused(name, sh("true"), func(config *runtimeapi.ContainerConfig) {
			config.CDIDevices = []*runtimeapi.CDIDevice{{Name: cdiDevice}, {Name: name}}
		})
		p.expectRefused(name, sh("true"), func(config *runtimeapi.ContainerConfig) {
			config.Annotations = map[string]string{"cdi.k8s.io/rkt": name}
		})
	}
	if left := filesIn(t, dir); len(left) > 0 {
		t.Errorf("hooks of refused containers have run: %q", left)
	}
	p.expectCDI(dir, func(config *runtimeapi.ContainerConfig) {
		config.CDIDevices = []*runtimeapi.CDIDevice{{Name: cdiDevice}}
	})
}
