package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// damage is a state in which a power loss leaves a file that was not flushed to the disk.
type damage struct {
	name string
	do   func(path string) error
}

var damages = []damage{
	{"empty", func(path string) error { return os.Truncate(path, 0) }},
	{"zeros", func(path string) error {
		return rewritten(path, func(text []byte) []byte { return make([]byte, len(text)) })
	}},
	{"half", func(path string) error {
		return rewritten(path, func(text []byte) []byte { return text[:len(text)/2] })
	}},
	{"missing", os.Remove},
}

func rewritten(path string, change func([]byte) []byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, change(text), 0o600)
}

// podsOfEachKind are pods of a node: a container, a sandbox with a container, and a pod without containerd.
type podsOfEachKind struct {
	*node
	container, local string
	box              *box
}

func (n *node) podsOfEachKind(t *testing.T) podsOfEachKind {
	t.Helper()
	n.says("[local]\ncgroup_parent = '/%s'\n[stage1.%s]\npods_may_ask = true\n", n.daemon.Namespace(), n.name)
	task := n.running(t, []string{"testprog", "sleep", "1000"})
	exec, err := task.Exec(n.context(t), "e1", process(t, n.context(t), task, "testprog", "exit", "3"), cio.NullIO)
	must(t, err)
	exited := n.wait(t, exec)
	must(t, exec.Start(n.context(t)))
	expectExit(t, exited, 3)
	b := n.startBox(t, nil)
	must(t, b.member(t, []string{"testprog", "sleep", "1000"}).Start(n.context(t)))
	n.run(t, []string{"--rm", "--annotation", stage1Annotation + "=absent"}, n.id(), "true") // leaves a record of its failure

	image := filepath.Join(t.TempDir(), "image")
	for _, dir := range []string{"dev", "proc", "sys"} {
		must(t, os.MkdirAll(filepath.Join(image, dir), 0o755))
	}
	program, err := os.ReadFile(suite.testprog)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(image, "testprog"), program, 0o755))
	local := strings.TrimSpace(n.configured(t, "app", "sandbox", "--stage1", n.name))
	n.configured(t, "app", "add", local, "--app=web", image, "--", "/testprog", "sleep", "1000")
	n.configured(t, "app", "start", local, "--app=web")
	n.configured(t, "metrics", "--once", "--textfile", filepath.Join(t.TempDir(), "metrics"))
	return podsOfEachKind{n, task.ID(), local, b}
}

// configured calls rktctl with the node's configuration.
func (n *node) configured(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(suite.shims, "rktctl"), args...)
	cmd.Env = append(cmd.Environ(), "RKT_DATA_DIR="+dataDir(n.daemon.Dir()), "RKT_CONFIG="+n.file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("rktctl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// save copies what the pods have on the disk, without what is mounted there.
func (n *node) save(t *testing.T) (disk string) {
	t.Helper()
	disk = filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o755))
	copied(t, "-x", dataDir(n.daemon.Dir()), filepath.Join(n.daemon.Dir(), "state"), disk)
	return disk
}

func copied(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("cp", append([]string{"-a"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("cp %q: %v: %s", args, err, out)
	}
}

var (
	flushed = regexp.MustCompile(`^rkt/(trees/sha512-.*|images/sha256-.*|holder)$`)
	// ofImage are mounts of the stage1's image in a pod.
	ofImage = regexp.MustCompile(`/stage1/(manifest|rootfs/([^/]*|opt/.*))$`)
)

// unflushed lists the files and links of a disk that a power loss may damage: all but those of images and of the
// holder, which are flushed before they are used.
func unflushed(t *testing.T, disk, namespace string) (names []string) {
	t.Helper()
	for _, dir := range []string{"rkt", "state/io.containerd.runtime.v2.task/" + namespace, "state/io.containerd.sandbox.controller.v1.shim/" + namespace} {
		err := filepath.WalkDir(filepath.Join(disk, dir), func(path string, e fs.DirEntry, err error) error {
			name, _ := filepath.Rel(disk, path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case flushed.MatchString(name):
				return fs.SkipDir
			case ofImage.MatchString(name):
			case e.Type().IsRegular(), e.Type() == fs.ModeSymlink:
				names = append(names, name)
			}
			return nil
		})
		must(t, err)
	}
	return names
}

// byKind orders files by their names without ids of pods, apps and containers.
func byKind(a, b string) int { return strings.Compare(kindOf(a), kindOf(b)) }

var idInPath = regexp.MustCompile(`/([0-9a-f-]{16,}|c[0-9]+(-[0-9a-f]+)?)(\.json)?($|/)`)

func kindOf(name string) string { return idInPath.ReplaceAllString(name, "/ID/") }

// After a power loss a file of the last half minute may be empty, of zeros, short or missing. Whichever it is, the pod is
// collected, and nothing else is concerned: the files are those that pods really have.
func TestARecordThatWasLostWithThePowerHoldsUpNothing(t *testing.T) {
	eachOf(t, []string{"native", "oci"}, func(t *testing.T, c *column) {
		pods := c.asideNode(t).podsOfEachKind(t)
		disk := pods.save(t)
		pods.configured(t, "app", "rm", pods.local, "--pod", "--force") // its cgroup would end with the power
		names := unflushed(t, disk, pods.daemon.Namespace())
		for _, file := range []string{"/shim.json", "/app.json", "/pod", "/journal", "/boot", "/rkt.json", "/pod.json", "/sandbox.json"} {
			if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, file) }) {
				t.Errorf("no pod has a file %s", file)
			}
		}
		t.Logf("%d files", len(names))
		if !*longFlag {
			names = slices.CompactFunc(slices.SortedFunc(slices.Values(names), byKind), func(a, b string) bool { return byKind(a, b) == 0 })
		}
		for i, name := range names {
			for j, d := range damages {
				if link, err := os.Readlink(filepath.Join(disk, name)); err == nil && (link == "" || d.name != "missing") {
					continue // the text of a link is in its inode
				}
				if *longFlag || i%len(damages) == j {
					t.Run(name+" "+d.name, func(t *testing.T) { pods.losesPower(t, disk, name, d, (i+j)%2 == 0) })
				}
			}
		}
		pods.run(t, nil, pods.id(), "true").must(t)
		execs := pods.ctr(t, "task", "exec", "--exec-id", "last", pods.container, "testprog", "exit", "0")
		if execs.code != 0 || !alive(pods.box.pid) {
			t.Errorf("pods of this boot were concerned: %+v, the sandbox is alive: %v", execs, alive(pods.box.pid))
		}
	})
}

// losesPower damages a file in a copy of the disk, and checks everything that happens after a boot. Bundles are on the
// disk, or were in memory.
func (p podsOfEachKind) losesPower(t *testing.T, disk, name string, d damage, bundles bool) {
	mine := filepath.Join(t.TempDir(), "disk")
	copied(t, disk, mine)
	must(t, d.do(filepath.Join(mine, name)))
	if !bundles {
		must(t, os.RemoveAll(filepath.Join(mine, "state")))
	}
	r := p.reboot(t, "--bind", mine)
	next := r.collects(p.name)
	r.works("metrics")
	r.works("report", "--file", r.daemon.Dir()+"/report")
	if got := r.rktctl("doctor"); strings.Contains(got.stdout+got.stderr, "damaged") {
		t.Errorf("doctor: %s%s", got.stdout, got.stderr)
	}
	r.works("stage1", "gc")
	if r.glob("rkt/local/"+p.local) != nil { // or the new pod's command has taken it for an unfinished one
		r.works("app", "rm", p.local, "--pod")
	}
	r.works("image", "gc")
	r.leavesNothingBut(next)
}

// onExt4 starts a node whose directory is a small ext4, which writes its journal every second. containerd's own files are
// on another disk, because the unmount of a container's overlay flushes the disk of its upper directory.
func (c *column) onExt4(t *testing.T) (n *node, image string) {
	t.Helper()
	programs, err := c.release.find(c.context(t))
	must(t, err)
	name := fmt.Sprintf("a%d", asides.Add(1))
	opts := c.release.options(name, programs, c.daemon.Namespace()+"-"+name)
	must(t, os.MkdirAll(opts.Dir, 0o755))
	mountExt4(t, opts.Dir, "64M", "commit=1")
	must(t, os.Symlink(t.TempDir(), filepath.Join(opts.Dir, "root")))
	file := filepath.Join(t.TempDir(), "config.toml")
	opts.Env = append(opts.Env, "RKT_CONFIG="+file)
	n = &node{c.private(t, c.release, opts), t, file}
	t.Cleanup(func() { detach(t, opts.Dir) })
	n.says("[local]\ncgroup_parent = '/%s'\n[stage1.%s]\npods_may_ask = true\n", n.daemon.Namespace(), n.name)
	t.Cleanup(func() { n.cleanUp(t) })
	return n, opts.Dir + ".img"
}

// The disk is that of a host whose power fails while pods are made, run and end.
func TestPodsOfADiskThatLostItsPowerAreCollected(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		moments := 3
		if *longFlag {
			moments = 30
		}
		n, image := c.onExt4(t)
		end := n.load(t)
		var images []string
		for i := range moments {
			images = append(images, filepath.Join(t.TempDir(), fmt.Sprint(i)))
			n.awaitMoment(t, image, images[i])
		}
		end()
		pods, damaged := 0, 0
		for _, image := range images {
			r := n.reboot(t, "-o", "loop", image)
			for _, pod := range r.glob("rkt/pods/*/*") {
				pods++
				if text, err := os.ReadFile(r.path(pod, "shim.json")); err != nil || !json.Valid(text) {
					damaged++
				}
			}
			r.leavesNothingBut(r.collects(n.name))
		}
		t.Logf("%d images have %d pods, %d of them without a valid shim.json", moments, pods, damaged)
		if damaged == 0 {
			t.Error("no image has a pod with a damaged record")
		}
	})
}

// load makes and removes containers until the returned function is called.
func (n *node) load(t *testing.T) (end func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var older string
		for {
			select {
			case <-stop:
				return
			default:
			}
			id := n.id()
			if r := n.run(t, []string{"-d"}, id, "testprog", "sleep", "1000"); r.code != 0 {
				t.Errorf("%s: %s", id, r.stderr)
			}
			n.ctr(t, "task", "exec", "--exec-id", "e", id, "true")
			if older != "" {
				n.ctr(t, "task", "delete", "--force", older)
				n.ctr(t, "container", "delete", older)
			}
			older = id
		}
	}()
	return func() { close(stop); <-ended }
}

// awaitMoment copies the image of the node's disk as the device has it at one moment, when the journal has a pod of the
// load. It copies again if the device was written meanwhile.
func (n *node) awaitMoment(t *testing.T, image, copy string) {
	t.Helper()
	wait.Observe(t, "a copy of the disk is of one moment and has a pod", func() (bool, string) {
		pods, err := os.ReadDir(filepath.Join(dataDir(n.daemon.Dir()), "pods/run"))
		if err != nil || len(pods) == 0 {
			return false, "there is no pod"
		}
		copied(t, "--sparse=always", image, copy)
		if exec.Command("cmp", "-s", image, copy).Run() != nil {
			return false, "the device was written"
		}
		return strings.Contains(read(t, copy), pods[0].Name()), "the journal has no pod yet"
	})
}
