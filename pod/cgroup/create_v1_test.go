package cgroup

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	devices "github.com/opencontainers/cgroups/devices/config"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// lines returns the sorted lines of devices.list, each with its permissions in one order.
func lines(list string) []string {
	var all []string
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		letters := strings.Split(words[len(words)-1], "")
		slices.Sort(letters)
		words[len(words)-1] = strings.Join(letters, "")
		all = append(all, strings.Join(words, " "))
	}
	slices.Sort(all)
	return all
}

// The devices that a new cgroup allows are those that the library would allow, whatever the
// rules are.
func TestDevicesAreThoseOfTheLibraryOnVersion1(t *testing.T) {
	needV1(t)
	quick := create(t, "quick", nil)
	slow := create(t, "slow", nil)
	number := func() *int64 { return []*int64{nil, ptr[int64](1), ptr[int64](5)}[rand.IntN(3)] }
	fast := 0
	for range 300 {
		rules := slices.Clone(denyAll)
		for range rand.IntN(6) {
			rules = append(rules, specs.LinuxDeviceCgroup{
				Allow:  rand.IntN(4) > 0,
				Type:   []string{"c", "b", "c", "b", "a"}[rand.IntN(5)],
				Major:  number(),
				Minor:  number(),
				Access: []string{"r", "rw", "rwm", "m", "mw"}[rand.IntN(5)],
			})
		}
		r, err := convert(&specs.LinuxResources{Devices: rules}, 1)
		if err != nil {
			t.Fatal(err)
		}
		all, allowed, ok := onlyAllowed(r.Devices)
		if !ok {
			continue
		}
		fast++
		m, err := slow.manager(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Set(r); err != nil {
			t.Errorf("%+v: the library refuses it: %v", rules, err)
			continue
		}
		if err := limitDevices(quick.Dir("devices"), all, allowed); err != nil {
			t.Errorf("%+v: %v", rules, err)
			continue
		}
		got, want := lines(read(t, quick, "devices", "devices.list")), lines(read(t, slow, "devices", "devices.list"))
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: allows %q, want %q", rules, got, want)
		}
	}
	if fast < 30 {
		t.Errorf("only %d of 300 lists of rules were tried", fast)
	}
}

// A device may be denied of which a wildcard allows more: that is the library's to refuse.
func TestADeniedDeviceOfAnAllowedWildcardIsRefusedOnVersion1(t *testing.T) {
	needV1(t)
	_, err := Maker{}.Create(Path{Spec: base + "/hole"}, &specs.LinuxResources{Devices: append(slices.Clone(denyAll),
		specs.LinuxDeviceCgroup{Allow: true, Type: "c", Access: "rwm"},
		specs.LinuxDeviceCgroup{Type: "c", Major: ptr[int64](1), Minor: ptr[int64](1), Access: "r"})})
	if err == nil || !strings.Contains(err.Error(), "wildcard") {
		t.Errorf("%v", err)
	}
}

// Docker's default denies some devices after it has denied all.
func TestADeniedDeviceThatWasNotAllowedChangesNothing(t *testing.T) {
	all, allowed, ok := onlyAllowed([]*devices.Rule{
		{Type: devices.WildcardDevice, Major: -1, Minor: -1, Permissions: "rwm"},
		{Type: devices.CharDevice, Major: 1, Minor: 5, Permissions: "rwm", Allow: true},
		{Type: devices.CharDevice, Major: 10, Minor: 229, Permissions: "rwm"},
		{Type: devices.CharDevice, Major: 1, Minor: 5, Permissions: "w"},
	})
	if all || !ok || len(allowed) != 1 || allowed[0].Permissions != "rm" {
		t.Errorf("all %v, allowed %+v, %v", all, allowed, ok)
	}
}

// New cpusets above the cgroup are empty, and have to be filled first.
func TestCpusetsAboveAreFilledOnVersion1(t *testing.T) {
	h := needV1(t)
	if h.roots["cpuset"] == "" {
		t.Skip("no cpuset controller")
	}
	t.Cleanup(func() {
		for _, dir := range h.places(base + "/deep") {
			_ = os.Remove(filepath.Join(dir, "er"))
			_ = os.Remove(dir)
		}
	})
	g := create(t, "deep/er/app", nil)
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		root, err := os.ReadFile(filepath.Join(h.roots["cpuset"], file))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, g, "cpuset", file); got != strings.TrimSpace(string(root)) {
			t.Errorf("%s is %q, want %q", file, got, root)
		}
	}
	enter(t, g, "exit")
}

// A process may have left its cgroup in some hierarchies. Create looks at all, and removes what
// it has made.
func TestAPathWithAProcessInAnyHierarchyIsTakenOnVersion1(t *testing.T) {
	h := needV1(t)
	dirs := h.dirs(base + "/half")
	if err := os.MkdirAll(dirs["memory"], 0o755); err != nil {
		t.Skip("no memory controller: ", err)
	}
	process := enterDirs(t, []string{dirs["memory"]}, "tasks", "exec sleep 60")
	_, err := Maker{}.Create(Path{Spec: base + "/half"}, nil)
	if err == nil || !strings.Contains(err.Error(), "in use by the processes") {
		t.Errorf("%v", err)
	}
	for _, dir := range distinct(dirs) {
		if _, err := os.Stat(dir); (err == nil) != (dir == dirs["memory"]) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	_ = process.Process.Kill()
	<-process.ended
	create(t, "half", nil)
}

func TestEndKillsAndRemoves(t *testing.T) {
	h := needHost(t)
	for _, populated := range []bool{false, true} {
		g := create(t, "end", nil)
		if populated {
			enter(t, g, "exec sleep 60")
		}
		if err := g.End(t.Context()); err != nil {
			t.Errorf("populated %v: %v", populated, err)
		}
		for _, dir := range h.places(base + "/end") {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("populated %v: %s is still there", populated, dir)
			}
		}
		if err := g.End(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
	}
}

// The list of mounts gives the directories that the library finds by trying each controller.
func TestTheUsualRootsAreThoseOfTheLibraryOnVersion1(t *testing.T) {
	needV1(t)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var listed, found hierarchies
	if !listed.usualRoots(namesIn(own)) {
		t.Skip("the hierarchies are not where they usually are")
	}
	if err := found.searchRoots(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range found.roots { // the library does not know all
		if listed.roots[name] != dir {
			t.Errorf("%s is at %q, want %q", name, listed.roots[name], dir)
		}
	}
	if found.unified != "" && listed.unified != found.unified {
		t.Errorf("unified at %q, want %q", listed.unified, found.unified)
	}
}

// A new cgroup has 1024 shares. The kernel takes a number out of bounds for another one, which is
// an error.
func TestSharesAreSetAsTheLibrarySetsThemOnVersion1(t *testing.T) {
	h := needV1(t)
	if h.roots["cpu"] == "" {
		t.Skip("no cpu controller")
	}
	for shares, refusal := range map[uint64]string{
		0: "", 1: "minimum", 2: "", 1023: "", 1024: "", 262144: "", 262145: "maximum",
	} {
		name := fmt.Sprintf("shares-%d", shares)
		g, err := Maker{}.Create(Path{Spec: base + "/" + name}, &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}})
		if refusal != "" {
			if err == nil || !strings.Contains(err.Error(), refusal) {
				t.Errorf("%d shares: %v, want an error about the %s", shares, err, refusal)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d shares: %v", shares, err)
			continue
		}
		want := strconv.FormatUint(cmp.Or(shares, 1024), 10)
		if got := read(t, g, "cpu", "cpu.shares"); got != want {
			t.Errorf("%s shares, want %s", got, want)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestTheHierarchiesAreInTheListOfMounts(t *testing.T) {
	long := "60 20 0:40 / /data/merged rw - overlay overlay lowerdir=" + strings.Repeat("/a/long/directory:", 1000) + "\n"
	text := `20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 20 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 master:3 - cgroup cgroup rw,cpu,cpuacct
` + long + `33 30 0:29 / /sys/fs/cgroup/devices rw - cgroup none rw,devices,clone_children
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 20 0:27 / /tmp/other rw - cgroup cgroup rw,name=systemd
36 30 0:31 / /sys/fs/cgroup/mine rw - cgroup cgroup rw,name=mine
37 20 0:32 / /data/\040-\040cgroup rw - tmpfs tmpfs rw,devices
38 20 0:33 /a /data/pod/net_cls rw - cgroup cgroup rw,net_cls
39 20 0:33 / /run/plugin/net_cls rw - cgroup cgroup rw,net_cls
40 20 0:33 / /run/plugin/again rw - cgroup cgroup rw,net_cls
41 20 0:30 / /run/plugin/cgroupv2 rw - cgroup2 cgroup2 rw
42 20 0:34 / /data/fuse rw - cgroupfuse cgroup rw,rdma
`
	want := map[string]string{
		"name=systemd": "/sys/fs/cgroup/systemd",
		"cpu":          "/sys/fs/cgroup/cpu,cpuacct",
		"cpuacct":      "/sys/fs/cgroup/cpu,cpuacct",
		"devices":      "/sys/fs/cgroup/devices",
		"name=mine":    "/sys/fs/cgroup/mine",
		"net_cls":      "/run/plugin/net_cls",
		"":             "/sys/fs/cgroup/unified",
	}
	wanted := namesIn([]byte("9:name=systemd:/\n8:cpu,cpuacct:/a:b\n7:devices:/\n6:name=mine:/\n5:net_cls:/\n0::/\n"))
	if slices.Sort(wanted); !slices.Equal(wanted, slices.Sorted(maps.Keys(want))) {
		t.Errorf("wanted are %v", wanted)
	}
	twice := text + "38 30 0:29 / /sys/fs/cgroup/again rw - cgroup none rw,devices\n"
	for what, wanted := range map[string][]string{"those of the kernel": wanted, "others": append(wanted, "pids", "rdma")} {
		if roots, err := parseRoots(strings.NewReader(twice), wanted, anywhere); err != nil || !maps.Equal(roots, want) {
			t.Errorf("%s are wanted: they are %v (%v), want %v", what, roots, err, want)
		}
	}
}

// The kernel makes the list of mounts while it is read, and it has several mounts of each pod.
func TestTheListOfMountsIsReadAsFarAsTheHierarchies(t *testing.T) {
	head := "31 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n33 30 0:29 / /sys/fs/cgroup/devices rw - cgroup none rw,devices\n"
	rest := strings.NewReader(strings.Repeat("60 20 0:40 / /a/pod rw - overlay overlay lowerdir=/a:/b\n", 10_000))
	whole := rest.Len()
	if roots, err := parseRoots(io.MultiReader(strings.NewReader(head), rest), []string{"devices", "name=systemd"}, anywhere); err != nil || len(roots) != 2 {
		t.Fatalf("%v, %v", roots, err)
	}
	if read := whole - rest.Len(); read > 4096 { // the buffer
		t.Errorf("%d bytes were read after the hierarchies", read)
	}
}

// Network plugins mount cgroup2 beside version 1, in a directory of their own.
func TestTheUnifiedHierarchyIsFoundWhereAPluginMountsIt(t *testing.T) {
	text := "33 30 0:29 / /sys/fs/cgroup/devices rw - cgroup none rw,devices\n41 20 0:30 / /run/plugin/cgroupv2 rw - cgroup2 none rw\n"
	roots, err := parseRoots(strings.NewReader(text), []string{"devices", ""}, anywhere)
	if err != nil || roots[""] != "/run/plugin/cgroupv2" {
		t.Errorf("%v, %v", roots, err)
	}
}

func anywhere(string, string) bool { return true }

// A network plugin may mount version 2 at a place of its own, and hide the usual one.
func TestAMountThatAnotherOneHidesIsNotTheRootOfAHierarchyOnVersion1(t *testing.T) {
	const text = "30 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n31 20 0:26 / /run/my\\040plugin/cgroup\\0402 rw - cgroup2 cgroup2 rw\n"
	roots, err := parseRoots(strings.NewReader(text), []string{""}, func(_, dir string) bool { return dir != "/sys/fs/cgroup/unified" })
	if want := map[string]string{"": "/run/my plugin/cgroup 2"}; err != nil || !maps.Equal(roots, want) {
		t.Errorf("%v, %v; want %v", roots, err, want)
	}
}
