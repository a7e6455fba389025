package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// bench is a node in a directory, without anything wrong.
type bench struct {
	t    *testing.T
	root string
	node Node
	env  map[string]string
}

const goodHandler = `
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rkt-oci]
  runtime_type = "io.containerd.rkt-oci.v1"
  sandboxer = "podsandbox"
  pod_annotations = ["io.containerd.rkt.v1/*", "io.containerd.rkt.v1.*"]
`

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: programs have to be root's")
	}
	b := &bench{t: t, root: t.TempDir()}
	b.env = map[string]string{"PATH": b.path("bin")}
	for path, text := range map[string]string{
		"proc/self/mountinfo":                   "31 25 0:27 / " + b.path("cgroup") + " rw shared:9 - cgroup2 cgroup2 rw\n",
		"cgroup/cgroup.controllers":             "cpuset cpu io memory pids",
		"proc/filesystems":                      "nodev\tproc\nnodev\toverlay\n",
		"proc/sys/kernel/seccomp/actions_avail": "kill_process errno allow",
		"etc/config.toml":                       "version = 3\nimports = ['conf.d/*.toml']\n",
		"etc/conf.d/rkt.toml":                   "version = 3\n" + goodHandler,
		"stage1/oci/rootfs/run":                 "#!/bin/sh\n",
	} {
		b.write(path, text)
	}
	b.program("containerd-shim-rkt-v1", "printf 'x:\\n  Version:    v1\\n'")
	b.program("containerd", "echo containerd github.com/containerd/containerd v2.4.2 abc")
	b.link("containerd-shim-rkt-oci-v1", "containerd-shim-rkt-v1")
	if err := os.Mkdir(b.path("data"), 0o711); err != nil {
		t.Fatal(err)
	}
	b.node = Node{
		Proc: b.path("proc"), Release: "6.1.0", DataDir: b.path("data"), Containerd: b.path("etc/config.toml"), Version: "v1",
		Getenv:  func(name string) string { return b.env[name] },
		Stage1s: []Stage1{{Name: "native", InUse: true}, {Name: "oci", Rootfs: b.path("stage1/oci/rootfs"), Programs: []string{"/run"}}},
	}
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.root, name) }

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) program(name, script string) {
	b.t.Helper()
	b.write("bin/"+name, "#!/bin/sh\n"+script+"\n")
	b.chmod("bin/"+name, 0o755)
}

func (b *bench) chmod(name string, mode fs.FileMode) {
	b.t.Helper()
	if err := os.Chmod(b.path(name), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) remove(name string) {
	b.t.Helper()
	if err := os.RemoveAll(b.path(name)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) link(name, to string) {
	b.t.Helper()
	if err := os.Symlink(to, b.path("bin/"+name)); err != nil {
		b.t.Fatal(err)
	}
}

// wrong returns the findings with which something is wrong.
func (b *bench) wrong() []Finding {
	var wrong []Finding
	for _, f := range Examine(b.t.Context(), b.node) {
		if f.Wrong() {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

func TestNothingIsWrongWithANodeThatIsRight(t *testing.T) {
	b := newBench(t)
	all := Examine(t.Context(), b.node)
	areas := map[string]bool{}
	for _, f := range all {
		areas[f.Area] = true
		if f.Severity != OK || f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
	for _, area := range []string{"kernel", "cgroups", "installation", "containerd", "handler", "data directory", "stage1"} {
		if !areas[area] {
			t.Errorf("nothing about %s in %+v", area, all)
		}
	}
}

func TestEachThingThatIsWrongIsFoundWithItsFix(t *testing.T) {
	handler := func(change ...string) func(*bench) {
		return func(b *bench) { b.write("etc/conf.d/rkt.toml", strings.NewReplacer(change...).Replace(goodHandler)) }
	}
	for name, c := range map[string]struct {
		breaks   func(*bench)
		severity Severity
		text     string
		fix      string
	}{
		"an old kernel":        {func(b *bench) { b.node.Release = "5.4.0-1" }, Error, "older than 5.14", "5.14 or later"},
		"no seccomp":           {func(b *bench) { b.write("proc/sys/kernel/seccomp/actions_avail", "") }, Warning, "no seccomp filters", "CONFIG_SECCOMP_FILTER"},
		"no user namespaces":   {func(b *bench) { b.write("proc/sys/user/max_user_namespaces", "0\n") }, Warning, "no user namespaces", "sysctl user.max_user_namespaces=65536"},
		"no cgroups":           {func(b *bench) { b.write("proc/self/mountinfo", "") }, Error, "no cgroups", "cgroup2"},
		"no memory controller": {func(b *bench) { b.write("cgroup/cgroup.controllers", "cpuset cpu pids") }, Warning, "without the controllers memory", "cgroup_enable"},
		"no devices on 1": {
			func(b *bench) {
				b.write("proc/self/mountinfo", "1 2 0:3 / /c rw - cgroup cgroup rw,memory\n1 2 0:3 / /c rw - cgroup cgroup rw,cpu,cpuset,pids,freezer\n")
			}, Error, "devices is not mounted", "mount -t cgroup -o devices",
		},
		"no shim": {func(b *bench) {
			b.remove("bin/containerd-shim-rkt-v1")
			b.remove("bin/containerd-shim-rkt-oci-v1")
			b.remove("etc")
		}, Error, "containerd-shim-rkt-v1 is in no directory", "install"},
		"another version":                {func(b *bench) { b.node.Version = "v2" }, Warning, "and rktctl v2", "together"},
		"a shim that others can write":   {func(b *bench) { b.chmod("bin/containerd-shim-rkt-v1", 0o777) }, Error, "others than root can write it", "chmod go-w "},
		"a bin that others can write":    {func(b *bench) { b.chmod("bin", 0o777) }, Error, "others than root can write it", "chmod go-w "},
		"a shim that cannot be executed": {func(b *bench) { b.chmod("bin/containerd-shim-rkt-v1", 0o644) }, Error, "cannot be executed", "chmod +x"},
		"a server program that others can write": {func(b *bench) {
			b.program(early.ServerProgram, "")
			b.chmod("bin/"+early.ServerProgram, 0o777)
		}, Error, early.ServerProgram + " has the mode 0777: others than root can write it", "chmod go-w "},
		"a server program that is missing": {func(b *bench) {
			b.program("containerd-shim-rkt-v1", "echo its server program is missing >&2; exit 1")
		}, Error, "does not print its version", "containerd-shim-rkt-v1 -v"},
		"a link that leads nowhere":      {func(b *bench) { b.link("containerd-shim-rkt-x-v1", "gone") }, Error, "containerd-shim-rkt-x-v1 is a link that leads nowhere", "ln -sfn containerd-shim-rkt-v1"},
		"a link to another program":      {func(b *bench) { b.link("containerd-shim-rkt-native-v1", "containerd") }, Warning, "is not the shim beside it", "ln -sfn"},
		"a link without its stage1":      {func(b *bench) { b.link("containerd-shim-rkt-vm-v1", "containerd-shim-rkt-v1") }, Error, "for the stage1 vm, which this node does not have", "rm "},
		"an old containerd":              {func(b *bench) { b.program("containerd", "echo containerd c v1.5.2 x") }, Error, "older than 1.6", "install containerd"},
		"a configuration that is none":   {func(b *bench) { b.write("etc/config.toml", "version = 3\n[plugins\n") }, Error, "etc/config.toml:2", "correct the file"},
		"an import that is not there":    {func(b *bench) { b.write("etc/config.toml", "imports = ['conf.d/*.toml', 'gone.toml']\n") }, Warning, "gone.toml", "imports"},
		"a drop-in that is not imported": {func(b *bench) { b.write("etc/config.toml", "version = 3\n") }, Warning, "conf.d/rkt.toml is not read", "config.toml:1: add imports"},
		"a handler without a shim":       {handler("rkt-oci.v1", "rkt-vm.v1"), Error, "containerd executes containerd-shim-rkt-vm-v1", "rkt.toml:3: runtime_type"},
		"a handler without its link":     {func(b *bench) { b.remove("bin/containerd-shim-rkt-oci-v1") }, Error, "containerd executes containerd-shim-rkt-oci-v1", "ln -sfn containerd-shim-rkt-v1 "},
		"a handler with dots":            {handler("rkt-oci.v1", "rkt.oci.v1"), Error, "containerd executes containerd-shim-oci-v1", "rkt.toml:3"},
		"a path that leads nowhere":      {handler("sandboxer", "runtime_path = '/no/containerd-shim-rkt-v1'\nsandboxer"), Error, "its shim cannot be executed", "rkt.toml:4"},
		"a wrong sandboxer":              {handler("podsandbox", "podsandbx"), Error, `no sandboxer "podsandbx"`, "rkt.toml:4"},
		"a sandboxer of 2.0": {
			func(b *bench) {
				b.program("containerd", "echo containerd c v1.7.2 x")
				b.write("etc/config.toml", strings.Replace(goodHandler, "podsandbox", "shim", 1))
			}, Error, "need containerd 2.0", "config.toml:4",
		},
		"annotations that are dropped": {handler(`"io.containerd.rkt.v1/*", `, ""), Warning, "io.containerd.rkt.v1/* of pods do not reach", "rkt.toml:5: add"},
		"options": {func(b *bench) {
			b.write("etc/conf.d/z.toml", "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.rkt-oci.options]\nBinaryName = 'x'\n")
		}, Warning, "user namespaces", "z.toml:1: remove"},
		"a table that replaces others":    {func(b *bench) { b.program("containerd", "echo containerd c v1.7.2 x") }, Warning, "replaces all other settings", "move the table"},
		"a data directory of everybody's": {func(b *bench) { b.chmod("data", 0o777) }, Error, "others than root can write it", "chmod go-w "},
		"a shared data directory":         {func(b *bench) { b.chmod("data", 0o777|fs.ModeSticky) }, Error, "shared with other users", "RKT_DATA_DIR"},
		"trees that others reach":         {func(b *bench) { b.write("data/trees/x", ""); b.chmod("data/trees", 0o755) }, Error, "set-id programs", "chmod 0700 "},
		"a data directory that is a file": {func(b *bench) { b.remove("data"); b.write("data", "") }, Error, "cannot be used as a directory", "RKT_DATA_DIR"},
		"a configuration problem": {func(b *bench) {
			b.node.Problems = []Finding{{"configuration", Error, "config.toml:1:1: unknown key", "x"}}
		}, Error, "unknown key", "x"},
		"no stage1":                    {func(b *bench) { b.node.Stage1s = nil; b.remove("etc"); b.remove("bin/containerd-shim-rkt-oci-v1") }, Error, "no stage1", "install"},
		"an image that cannot be used": {func(b *bench) { b.node.Stage1s[0].Problem = errors.New("no such file") }, Error, "native: no such file", "rktctl"},
		"a probe that fails":           {func(b *bench) { b.node.Stage1s[0].Probe = errors.New("runc is missing") }, Error, "runc is missing", "install"},
		"no interpreter":               {func(b *bench) { b.write("stage1/oci/rootfs/run", "#!/no/python3\n") }, Error, "/no/python3, which does not exist", "install /no/python3"},
		"no interpreter by env":        {func(b *bench) { b.write("stage1/oci/rootfs/run", "#!/usr/bin/env python-x\n") }, Error, "python-x, which does not exist", "install python-x"},
		"no machines": {func(b *bench) {
			b.node.Stage1s[0].AppcName, b.node.Stage1s[0].Probe = machines, errors.New("of sha512-1: features/probe: a is missing\nb is missing")
		}, Error, "native cannot boot machines on this node: a is missing; b is missing", "kvm.json"},
		"a handler of machines without their package": {func(b *bench) {
			b.link("containerd-shim-rkt-kvm-v1", "containerd-shim-rkt-v1")
			b.write("etc/conf.d/rkt.toml", strings.ReplaceAll(goodHandler, "rkt-oci", "rkt-kvm"))
		}, Error, "handler rkt-kvm: this node has no stage1 kvm", image.Elsewhere("kvm", runtime.GOARCH)},
		"no nspawn": {func(b *bench) { b.node.Stage1s[0].AppcName = "coreos.com/rkt/stage1-nspawn" }, Error, "needs systemd-nspawn", "systemd-container"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c.breaks(b)
			wrong := b.wrong()
			found := false
			for _, f := range wrong {
				found = found || f.Severity == c.severity && strings.Contains(f.Text, c.text) && strings.Contains(f.Fix, c.fix)
				if f.Fix == "" {
					t.Errorf("no fix: %+v", f)
				}
			}
			if !found || len(wrong) > 2 {
				t.Errorf("want %s %q, %q; %+v", c.severity, c.text, c.fix, wrong)
			}
		})
	}
}

func TestFilesThatDifferFromTheInventoryAreNamed(t *testing.T) {
	b := newBench(t)
	b.write("libexec/a", "text")
	if err := os.Symlink("a", b.path("libexec/l")); err != nil {
		t.Fatal(err)
	}
	const sum = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1" // of the word text
	lines := "libexec 0755 dir -\nlibexec/a 0644 file " + sum + "\nlibexec/l - link a\n"
	b.write(inventoryFile, lines)
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Fatalf("%+v", wrong)
	}
	b.write(machinesInventory, "libexec 0755 dir -\n")
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Fatalf("%+v", wrong)
	}
	b.write(machinesInventory, "libexec/kernel 0644 file "+sum+"\n")
	if wrong := b.wrong(); len(wrong) != 1 || !strings.Contains(wrong[0].Text, "libexec/kernel is missing") {
		t.Errorf("%+v", wrong)
	}
	b.remove(machinesInventory)
	for name, breaks := range map[string]func(){
		"libexec/a was changed":          func() { b.write("libexec/a", "texts") },
		"libexec/b is missing":           func() { b.write(inventoryFile, "libexec/b 0644 file "+sum+"\n") },
		"libexec/l does not lead to x":   func() { b.write(inventoryFile, "libexec/l - link x\n") },
		"libexec is no file":             func() { b.write(inventoryFile, "libexec 0755 file "+sum+"\n") },
		"and 3 more":                     func() { b.write(inventoryFile, strings.Repeat("gone - dir -\n", namedFiles+3)) },
		"a has the mode 0666, and not 0": func() { b.write("libexec/a", "text"); b.chmod("libexec/a", 0o666); b.write(inventoryFile, lines) },
	} {
		breaks()
		if wrong := b.wrong(); len(wrong) != 1 || !strings.Contains(wrong[0].Text, name) {
			t.Errorf("%s: %+v", name, wrong)
		}
	}
}

func TestAnInventoryThatCannotBeReadToItsEndIsAnError(t *testing.T) {
	b := newBench(t)
	b.write(inventoryFile, "libexec 0755 dir -\n"+strings.Repeat("x", 70_000)+"\n")
	if wrong := b.wrong(); len(wrong) != 1 || !strings.Contains(wrong[0].Text, "their list cannot be read after 1 of them: ") {
		t.Errorf("%+v", wrong)
	}
}

func TestAStage1BesideTheShimIsThereForALink(t *testing.T) {
	b := newBench(t)
	b.link("containerd-shim-rkt-vm-v1", "containerd-shim-rkt-v1")
	b.write("libexec/containerd-shim-rkt/stage1/vm/manifest", "{}")
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("%+v", wrong)
	}
}

// The shim has the link, and a package of its own has the image.
func TestTheLinkOfMachinesNeedsNoMachines(t *testing.T) {
	b := newBench(t)
	b.link("containerd-shim-rkt-kvm-v1", "containerd-shim-rkt-v1")
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("%+v", wrong)
	}
}

func TestAnUnusedStage1ThatCannotRunHereIsNothingWrong(t *testing.T) {
	b := newBench(t)
	b.node.Stage1s = append(b.node.Stage1s, Stage1{Name: "nspawn", AppcName: "coreos.com/rkt/stage1-nspawn"})
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("%+v", wrong)
	}
}

// process makes a process in the directory that stands for /proc.
func (b *bench) process(pid int, ns string, args, env []string) {
	b.t.Helper()
	dir := "proc/" + strconv.Itoa(pid)
	b.write(dir+"/comm", "containerd\n")
	b.write(dir+"/cmdline", strings.Join(args, "\x00")+"\x00")
	b.write(dir+"/environ", strings.Join(env, "\x00")+"\x00")
	for _, l := range [][2]string{{dir + "/exe", b.path("bin/containerd")}, {dir + "/ns/mnt", ns}, {"proc/self/ns/mnt", "mnt:[1]"}, {dir + "/root", "/"}, {"proc/self/root", "/"}} {
		if err := os.MkdirAll(filepath.Dir(b.path(l[0])), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.Symlink(l[1], b.path(l[0])); err != nil && !os.IsExist(err) {
			b.t.Fatal(err)
		}
	}
}

func TestTheRunningDaemonDecidesPathConfigurationAndDataDirectory(t *testing.T) {
	b := newBench(t)
	b.node.Containerd = ""
	b.process(7, "mnt:[1]", []string{"containerd", "--config", b.path("etc/config.toml")}, []string{"PATH=" + b.path("bin"), "RKT_DATA_DIR=/else", "SECRET=CANARY"})
	b.env["PATH"] = "/nowhere"
	wrong := b.wrong()
	if len(wrong) != 1 || !strings.Contains(wrong[0].Text, `RKT_DATA_DIR="/else"`) || wrong[0].Fix != "call RKT_DATA_DIR=/else rktctl …" {
		t.Errorf("%+v", wrong)
	}
	for _, f := range Examine(t.Context(), b.node) {
		if strings.Contains(f.Text+f.Fix, "CANARY") {
			t.Errorf("%+v", f)
		}
	}
}

// A container can run a program that is called containerd, and doctor executes programs.
func TestAProcessOfAContainerOrAUserIsNotTakenForTheDaemon(t *testing.T) {
	b := newBench(t)
	marker := b.path("executed")
	b.program("containerd", "touch "+marker)
	b.process(7, "mnt:[2]", []string{"containerd"}, nil)
	b.process(8, "mnt:[1]", []string{"containerd"}, nil)
	if err := os.Chown(b.path("proc/8"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	b.process(9, "mnt:[1]", []string{"containerd"}, nil)
	b.remove("proc/9/root") // the root of an app
	if err := os.Symlink(b.path("stage1"), b.path("proc/9/root")); err != nil {
		t.Fatal(err)
	}
	b.env["PATH"] = "/nowhere"
	b.wrong()
	if _, err := os.Stat(marker); !os.IsNotExist(err) {
		t.Errorf("its program was executed: %v", err)
	}
	b.env["PATH"] = b.path("bin")
	b.chmod("bin/containerd", 0o777)
	b.wrong()
	if _, err := os.Stat(marker); !os.IsNotExist(err) {
		t.Errorf("a program that others can write was executed: %v", err)
	}
}

func TestImportsInACircleEnd(t *testing.T) {
	b := newBench(t)
	b.write("etc/config.toml", "imports = ['config.toml', 'conf.d/*.toml']\n")
	b.write("etc/conf.d/rkt.toml", "imports = ['../config.toml', 'rkt.toml']\n"+goodHandler)
	if wrong := b.wrong(); len(wrong) > 0 {
		t.Errorf("%+v", wrong)
	}
}

func FuzzDaemonConfig(f *testing.F) {
	f.Add(goodHandler)
	f.Add("imports = ['*']\n[plugins.cri.containerd.runtimes.x]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readDaemonConfig(path)
		if err == nil {
			for _, h := range c.handlers {
				_ = h.at("runtime_type")
			}
		}
	})
}
