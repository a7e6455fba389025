package podmanifest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// write makes files below the working directory.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T) *podmanifest.Manifest {
	t.Helper()
	m, err := podmanifest.Read()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fails(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
}

func TestWhatThePodDoesNotSayOfAnAppItsImageSays(t *testing.T) {
	t.Chdir(t.TempDir())
	image := podmanifest.Stage2 + "/%/manifest"
	write(t, map[string]string{
		"pod": `{"acKind": "PodManifest", "apps": [{"name": "pods", "app": {"exec": ["/pods"]}}, {"name": "images", "readOnlyRootFS": true},
			{"name": "empty"}, {"name": "idle"}, {"name": "broken"}, {"name": "absent"}]}`,
		strings.Replace(image, "%", "pods", 1):   `{"app": {"exec": ["/image's"]}}`,
		strings.Replace(image, "%", "images", 1): `{"app": {"exec": ["/image's"], "supplementaryGIDs": [4294967294]}}`,
		strings.Replace(image, "%", "empty", 1):  `{"name": "image"}`,
		strings.Replace(image, "%", "idle", 1):   `{"app": {"exec": []}}`,
		strings.Replace(image, "%", "broken", 1): `{`,
	})
	m := read(t)
	for name, exec := range map[string]string{"pods": "/pods", "images": "/image's"} {
		a, err := m.Named(name)
		if err != nil || !slices.Equal(a.App.Exec, []string{exec}) || a.ReadOnly != (name == "images") {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if a, err := m.Named("images"); err != nil || !slices.Equal(a.App.Groups, []uint32{4294967294}) {
		t.Errorf("groups of %+v, %v", a, err)
	}
	for name, words := range map[string]string{
		"empty": "app empty has nothing to execute", "idle": "app idle has nothing to execute",
		"broken": "manifest of the image of app broken: unexpected end", "absent": "no such file or directory",
		"other": "there is no app other in the manifest of the pod",
	} {
		_, err := m.Named(name)
		fails(t, err, words)
	}
}

func TestAManifestThatCannotBeReadIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := podmanifest.Read()
	fails(t, err, "no such file or directory")
	write(t, map[string]string{"pod": `{"apps": 1}`})
	_, err = podmanifest.Read()
	fails(t, err, "manifest of the pod: json")
}

// shown returns the volumes that an app of the manifest sees, by their paths in
// the app.
func shown(t *testing.T, m *podmanifest.Manifest, app string) map[string]podmanifest.Shown {
	t.Helper()
	a, err := m.Named(app)
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.Shown(a)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]podmanifest.Shown{}
	for _, s := range all {
		at[s.Path] = s
	}
	if len(at) != len(all) {
		t.Errorf("two volumes are at one path: %+v", all)
	}
	return at
}

func TestAnAppSeesTheVolumesOfItsMountsAndMountPoints(t *testing.T) { // rkt-abi.md, section 11
	t.Chdir(t.TempDir())
	write(t, map[string]string{"pod": `{"volumes": [{"name": "host", "kind": "host", "source": "/srv", "readOnly": true, "recursive": false},
		{"name": "writable", "kind": "host", "source": "/w", "readOnly": false}, {"name": "plain", "kind": "empty"}, {"name": "block", "kind": "block"}],
		"apps": [
		{"name": "mounts", "app": {"exec": ["/a"], "mountPoints": [{"name": "plain", "path": "/unused", "readOnly": true}]}, "mounts": [
			{"volume": "host", "path": "/host"}, {"volume": "host", "path": "/own", "appVolume": {"name": "own", "kind": "host", "source": "/own"}}, {"volume": "plain", "path": "/plain"}]},
		{"name": "points", "app": {"exec": ["/a"], "mountPoints": [{"name": "host", "path": "/h"}, {"name": "writable", "path": "/w", "readOnly": true},
			{"name": "data", "path": "/d"}, {"name": "cache", "path": "/c", "readOnly": true}]}},
		{"name": "absent", "app": {"exec": ["/a"]}, "mounts": [{"volume": "none", "path": "/data"}]},
		{"name": "strange", "app": {"exec": ["/a"]}, "mounts": [{"volume": "block", "path": "/data"}]}]}`})
	m := read(t)
	for app, want := range map[string]map[string]struct {
		source   string
		readOnly bool
		deep     bool
	}{
		"mounts": {"/host": {"/srv", true, false}, "/own": {"/own", false, true}, "/plain": {"sharedVolumes/plain", true, true}, "/unused": {"sharedVolumes/plain", true, true}},
		"points": {"/h": {"/srv", true, false}, "/w": {"/w", false, true}, "/d": {"sharedVolumes/points-data", false, true}, "/c": {"sharedVolumes/points-cache", true, true}},
	} {
		got := shown(t, m, app)
		if len(got) != len(want) {
			t.Errorf("%s sees %+v", app, got)
		}
		for path, w := range want {
			s, ok := got[path]
			if !ok {
				t.Errorf("%s sees nothing at %s", app, path)
				continue
			}
			if source, err := s.Volume.Path(); err != nil || source != w.source || s.ReadOnly != w.readOnly || s.Volume.Deep() != w.deep {
				t.Errorf("%s sees at %s %s, %+v, %v", app, path, source, s, err)
			}
		}
	}
	for app, words := range map[string]string{
		"absent": "there is no volume none for /data", "strange": `volume block is of the kind "block", which is neither host nor empty`,
	} {
		a, err := m.Named(app)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Shown(a)
		fails(t, err, words)
	}
}

func TestAnEmptyVolumeIsMadeOnceForAllWhoSeeIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a directory away")
	}
	t.Chdir(t.TempDir())
	for _, v := range []struct {
		volume podmanifest.Volume
		mode   os.FileMode
	}{
		{podmanifest.Volume{Name: "plain", Kind: "empty"}, 0o755},
		{podmanifest.Volume{Name: "shared", Kind: "empty", Mode: "1777", UID: 7, GID: 8}, 0o777 | os.ModeSticky},
	} {
		path, err := v.volume.Path()
		if err != nil {
			t.Fatal(err)
		}
		write(t, map[string]string{path + "/f": "kept"})
		again, err := v.volume.Path() // of the next app
		if err != nil || again != path {
			t.Errorf("%s, then %s, %v", path, again, err)
		}
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || info.Mode().Perm()|info.Mode()&os.ModeSticky != v.mode {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, v.mode)
		}
		if text, err := os.ReadFile(path + "/f"); string(text) != "kept" {
			t.Errorf("what was in %s: %q, %v", path, text, err)
		}
	}
	_, err := (&podmanifest.Volume{Name: "odd", Kind: "empty", Mode: "9"}).Path()
	fails(t, err, "mode: ")
}

func TestFilesOfNamesAreTheHostsStage0sOrTheApps(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{"stage1/rootfs/etc/rkt-resolv.conf": "", "root/etc/passwd": "", "own/etc/hosts": "mine", "bare/f": ""})
	for _, c := range []struct{ mode, root, want, hosts string }{
		{"", "root", "", ""},
		{"resolv=default,hosts=host", "root", "/etc/hosts=/etc/hosts", ""},
		{"resolv=host,hosts=stage0", "root", "/etc/resolv.conf=/etc/resolv.conf", ""}, // stage 0 has left no hosts
		{"resolv=stage0", "root", "/etc/resolv.conf=stage1/rootfs/etc/rkt-resolv.conf", ""},
		{"resolv=none,hosts=default", "root", "", "127.0.0.1 localhost localdomain\n"},
		{"hosts=default", "own", "", "mine"},
		{"hosts=default", "bare", "", ""},
	} {
		all, err := podmanifest.NameFiles(c.mode, c.root)
		if err != nil {
			t.Errorf("%s: %v", c.mode, err)
		}
		var got []string
		for _, s := range all {
			if got = append(got, s.Path+"="+s.Volume.Source); !s.ReadOnly || s.Volume.Deep() {
				t.Errorf("%s: %+v", c.mode, s)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.mode, got, c.want)
		}
		if hosts, _ := os.ReadFile(c.root + "/etc/hosts"); string(hosts) != c.hosts {
			t.Errorf("%s: /etc/hosts of %s is %q, want %q", c.mode, c.root, hosts, c.hosts)
		}
	}
	for _, mode := range []string{"resolv=new", "hosts=none", "nsswitch=host", "resolv"} {
		_, err := podmanifest.NameFiles(mode, "root")
		fails(t, err, "--dns-conf-mode="+mode)
	}
}

func TestUsersAndGroupsAreNumbersNamesOrOwnersOfPaths(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	write(t, map[string]string{
		"etc/passwd": "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/sh\nodd:x:many:1::/:\n", "etc/group": "web:x:35:\n", "srv/file": "",
	})
	if err := os.Symlink("/../../../../etc", "out"); err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	for _, c := range []struct {
		user, group string
		uid, gid    uint32
		words       string
	}{
		{"0", "4294967294", 0, 4294967294, ""},
		{"web", "web", 33, 35, ""},
		{"/srv/file", "/srv/file", uid, gid, ""},
		{"nobody", "0", 0, 0, "user: nobody is neither a number nor in /etc/passwd"},
		{"0", "nobody", 0, 0, "group: nobody is neither a number nor in /etc/group"},
		{"odd", "0", 0, 0, "user: "},
		{"/srv/none", "0", 0, 0, "no such file or directory"},
		{"/out/hostname", "0", 0, 0, "user: "}, // not the host's
	} {
		a := &podmanifest.App{User: c.user, Group: c.group}
		uid, gid, err := a.Identity(root)
		if c.words != "" {
			fails(t, err, c.words)
		} else if err != nil || uid != c.uid || gid != c.gid {
			t.Errorf("%s and %s are %d and %d, %v; want %d and %d", c.user, c.group, uid, gid, err, c.uid, c.gid)
		}
	}
	_, _, err := (&podmanifest.App{User: "web", Group: "0"}).Identity(t.TempDir())
	fails(t, err, "user: web is no number, and ")
}

func TestAGroupAfterOneWithManyMembersIsFound(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	write(t, map[string]string{"etc/group": "all:x:9:" + strings.Repeat("member,", 20_000) + "\nweb:x:35:\n"})
	if _, gid, err := (&podmanifest.App{User: "0", Group: "web"}).Identity(root); err != nil || gid != 35 {
		t.Errorf("%d, %v", gid, err)
	}
	write(t, map[string]string{"etc/group": strings.Repeat("x", 17<<20) + "\nweb:x:35:\n"})
	_, _, err := (&podmanifest.App{User: "0", Group: "web"}).Identity(root)
	fails(t, err, "group: look up web in /etc/group: bufio.Scanner: token too long")
}

func TestTheEnvironmentIsTheFilesElseTheManifestsCompleted(t *testing.T) { // rkt-abi.md, section 11
	t.Chdir(t.TempDir())
	t.Setenv("TERM", "vt100")
	write(t, map[string]string{
		"pod":                         `{"apps": [{"name": "a", "app": {"exec": ["/a"], "environment": [{"name": "A", "value": "b c"}, {"name": "HOME", "value": "/h"}]}}]}`,
		"stage1/rootfs/rkt/env/filed": "A=file\nPATH=/bin\n",
	})
	for name, want := range map[string][]string{
		"filed": {"A=file", "PATH=/bin", "TERM=vt100"},
		"a": {"A=b c", "HOME=/h", "AC_APP_NAME=a", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"SHELL=/bin/sh", "USER=root", "LOGNAME=root", "TERM=vt100"},
	} {
		if env, err := podmanifest.EnterEnv(name); err != nil || !slices.Equal(env, want) {
			t.Errorf("%s: %q, %v; want %q", name, env, err, want)
		}
	}
	a, err := read(t).Named("a")
	if err != nil || !slices.Equal(a.App.Env(), []string{"A=b c", "HOME=/h"}) {
		t.Errorf("the manifest's own: %q, %v", a.App.Env(), err)
	}
	_, err = podmanifest.EnterEnv("b")
	fails(t, err, "there is no app b")
}
