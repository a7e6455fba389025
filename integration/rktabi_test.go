package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rktImage is a stage1 image that follows rkt's implementor's guide exactly, for one interface
// version.
type rktImage struct {
	version int
	mutable bool   // containers are added to its pods while they run
	log     string // directory
}

func (i rktImage) name() string {
	if i.mutable {
		return fmt.Sprintf("rkt%dm", i.version)
	}
	return fmt.Sprintf("rkt%d", i.version)
}

func (i rktImage) String() string {
	if i.mutable {
		return fmt.Sprintf("version %d mutable", i.version)
	}
	return fmt.Sprintf("version %d", i.version)
}

// rktFiles is the directory with the entrypoints of these images.
const rktFiles = "testdata/rkt"

// entrypoints maps the manifest's entrypoints to files.
func (i rktImage) entrypoints() map[string]string {
	e := map[string]string{"run": "run", "enter": "enter", "stop": "stop", "gc": "gc"}
	if i.mutable {
		e["run"], e["enter"], e["attach"] = "mutable_run", "mutable_enter", "attach"
		for _, name := range []string{"add", "start", "stop", "rm"} {
			e["app/"+name] = "app_" + name
		}
	} else if i.version >= 5 { // never called: the pod is made with its app, and there is no attach
		for _, name := range []string{"app/add", "app/start", "app/stop", "app/rm"} {
			e[name] = "never"
		}
	}
	return e
}

// install writes the image, and returns its directory.
func (i rktImage) install(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), i.name())
	for _, d := range []string{"rootfs/rkt/status", "rootfs/opt/stage2", "rootfs/etc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var annotations []string
	add := func(name, value string) {
		annotations = append(annotations, fmt.Sprintf(`{"name": "coreos.com/rkt/stage1/%s", "value": %q}`, name, value))
	}
	if i.version > 1 { // version 1 may be left out of the manifest
		add("interface-version", fmt.Sprint(i.version))
	}
	for name, file := range i.entrypoints() {
		add(name, "/"+file)
		copyProgram(t, filepath.Join(dir, "rootfs"), filepath.Join(rktFiles, file))
	}
	copyProgram(t, filepath.Join(dir, "rootfs"), filepath.Join(rktFiles, "lib.sh"))
	if i.mutable {
		for _, file := range []string{"mutable.sh", "supervise", "first", "reap"} {
			copyProgram(t, filepath.Join(dir, "rootfs"), filepath.Join(rktFiles, file))
		}
		copyProgram(t, filepath.Join(dir, "rootfs"), suite.testprog)
		if err := os.Rename(filepath.Join(dir, "rootfs", filepath.Base(suite.testprog)), filepath.Join(dir, "rootfs/mux")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "rootfs/version"), fmt.Sprintln(i.version))
	write(t, filepath.Join(dir, "rootfs/log"), i.log+"\n")
	write(t, filepath.Join(dir, "manifest"), fmt.Sprintf(`{"acKind": "ImageManifest", "acVersion": "0.8.10", "name": "example.com/rkt/stage1-%s", "annotations": [%s]}`,
		i.name(), strings.Join(annotations, ",\n")))
	return dir
}

// copyProgram copies a file to a directory, with an executable mode.
func copyProgram(t *testing.T, dir, file string) {
	t.Helper()
	to := filepath.Join(dir, filepath.Base(file))
	write(t, to, read(t, file))
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// rktNode is a node whose pods use such an image.
type rktNode struct {
	*node
	fixture rktImage
	dir     string // of the image
}

// eachRkt runs a case for images with immutable pods, of all versions.
func eachRkt(t *testing.T, test func(t *testing.T, n *rktNode)) {
	t.Helper()
	eachRktImage(t, immutableImages(), test)
}

// immutableImages returns the images whose pods have one container, one for every version.
func immutableImages() (images []rktImage) {
	for v := 1; v <= 6; v++ {
		images = append(images, rktImage{version: v})
	}
	return images
}

// mutableImages returns the images with mutable pods.
func mutableImages() []rktImage {
	return []rktImage{{version: 5, mutable: true}, {version: 6, mutable: true}}
}

// eachMutable runs a case for images with mutable pods.
func eachMutable(t *testing.T, test func(t *testing.T, n *rktNode)) {
	t.Helper()
	eachRktImage(t, mutableImages(), test)
}

// eachOfBoth runs a case for images of both kinds.
func eachOfBoth(t *testing.T, test func(t *testing.T, n *rktNode)) {
	t.Helper()
	eachRktImage(t, append(immutableImages(), mutableImages()...), test)
}

func eachRktImage(t *testing.T, images []rktImage, test func(t *testing.T, n *rktNode)) {
	t.Helper()
	aside(t, func(t *testing.T, c *column) {
		n := c.asideNode(t)
		for _, i := range images {
			t.Run(i.String(), func(t *testing.T) {
				i.log = t.TempDir()
				own := *n
				col := *n.column
				own.column, own.t = &col, t
				dir := i.install(t)
				col.runtime = "io.containerd.rkt-" + i.name() + ".v1"
				link := filepath.Join(suite.shims, "containerd-shim-rkt-"+i.name()+"-v1")
				if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
				own.says("[stage1.%s]\npath = %q\naccept = [\"appc\"]\n", i.name(), dir)
				test(t, &rktNode{&own, i, dir})
				n.serial = own.serial
				if calls := read(t, filepath.Join(i.log, "calls")); strings.Contains(calls, "misused") || t.Failed() {
					t.Errorf("how the entrypoints were called:\n%s", calls)
				}
			})
		}
	})
}

// calls returns the log lines of the entrypoints: their arguments and their environment.
func (n *rktNode) calls(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(read(t, filepath.Join(n.fixture.log, "calls"))), "\n")
}

// said returns the lines of calls with a prefix, without the prefix.
func (n *rktNode) said(t *testing.T, prefix string) (lines []string) {
	t.Helper()
	for _, l := range n.calls(t) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}

// appcManifest has the fields of a pod's manifest that the tests read.
type appcManifest struct {
	Apps []struct {
		Name string `json:"name"`
		App  struct {
			User             string `json:"user"`
			Group            string `json:"group"`
			WorkingDirectory string `json:"workingDirectory"`
			Isolators        []struct {
				Name  string          `json:"name"`
				Value json.RawMessage `json:"value"`
			} `json:"isolators"`
		} `json:"app"`
	} `json:"apps"`
}

// isolator returns the value of an isolator of the first app.
func (m appcManifest) isolator(name string) string {
	for _, i := range m.Apps[0].App.Isolators {
		if i.Name == name {
			return string(i.Value)
		}
	}
	return ""
}

// podManifest returns the manifest that the image has read.
func (n *rktNode) podManifest(t *testing.T) appcManifest {
	t.Helper()
	var m appcManifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(n.fixture.log, "pod"))), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// running reports whether a process has words in its command line.
func running(words string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), words+"\x00") {
			return true
		}
	}
	return false
}
