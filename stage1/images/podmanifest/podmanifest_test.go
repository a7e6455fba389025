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

func TestAMountShowsItsOwnVolumeOrThatOfThePod(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{"pod": `{"volumes": [
		{"name": "host", "kind": "host", "source": "/srv", "readOnly": true, "recursive": false},
		{"name": "shared", "kind": "empty", "mode": "1777", "uid": 7, "gid": 8},
		{"name": "plain", "kind": "empty"}, {"name": "odd", "kind": "empty", "mode": "9"}]}`})
	m := read(t)
	volume := func(of podmanifest.Mount) (*podmanifest.Volume, string) {
		t.Helper()
		v, err := m.Volume(of)
		if err != nil {
			t.Fatal(err)
		}
		path, err := v.Path()
		if err != nil {
			t.Fatal(err)
		}
		return v, path
	}
	if v, path := volume(podmanifest.Mount{Volume: "host"}); path != "/srv" || !v.ReadOnly || v.Deep() {
		t.Errorf("%+v at %s", v, path)
	}
	own := &podmanifest.Volume{Name: "own", Kind: "host", Source: "/own"}
	if v, path := volume(podmanifest.Mount{Volume: "host", Own: own}); path != "/own" || v.ReadOnly || !v.Deep() {
		t.Errorf("%+v at %s", v, path)
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o755, "shared": 0o777 | os.ModeSticky} {
		if os.Geteuid() != 0 && name == "shared" {
			continue // it is given to somebody else
		}
		_, path := volume(podmanifest.Mount{Volume: name})
		write(t, map[string]string{path + "/f": "kept"})
		_, path = volume(podmanifest.Mount{Volume: name}) // of the next app
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || info.Mode().Perm()|info.Mode()&os.ModeSticky != mode {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, mode)
		}
		if text, err := os.ReadFile(path + "/f"); string(text) != "kept" {
			t.Errorf("what was in %s: %q, %v", path, text, err)
		}
	}
	_, err := m.Volume(podmanifest.Mount{Volume: "none", Path: "/data"})
	fails(t, err, "there is no volume none for /data")
	odd, err := m.Volume(podmanifest.Mount{Volume: "odd"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = odd.Path()
	fails(t, err, "mode: ")
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
