package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// shimName is the program that containerd executes for io.containerd.rkt.v1.
const shimName = "containerd-shim-rkt-v1"

// shim checks the shim, and the links to it whose names pin a stage1.
func (e *examination) shim() {
	const area = "installation"
	e.daemon = e.findDaemon()
	path, err := e.lookPath(shimName)
	switch {
	case path == "":
		e.found(Error, area, "make install PREFIX=/usr/local, or install the package, into a directory of containerd's PATH",
			"%s is in no directory of containerd's PATH (%s)", shimName, e.getenv("PATH"))
		return
	case err != nil:
		e.found(Error, area, "ln -sfn THE-SHIM "+path, "%s is a link that leads nowhere: %v", path, err)
		return
	}
	if e.program(area, path) && e.serverProgram(area, path) {
		text := e.versionOf(path, "-v")
		e.sameVersion(area, path, text)
	}
	e.inventory(area, path)
	for _, dir := range filepath.SplitList(e.getenv("PATH")) {
		links, _ := filepath.Glob(filepath.Join(dir, "containerd-shim-rkt-*-v1"))
		for _, link := range links {
			e.link(area, link)
		}
	}
}

// sameVersion compares the shim's version with that of rktctl.
func (e *examination) sameVersion(area, path, text string) {
	version := ""
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "Version" {
			version = strings.TrimSpace(value)
		}
	}
	switch {
	case version == "":
		e.found(Error, area, path+" -v", "%s does not print its version", path)
	case e.Version != "" && e.Version != "unknown" && version != e.Version:
		e.found(Warning, area, "install the shim, the stage1s and rktctl together", "%s has the version %s, and rktctl %s", path, version, e.Version)
	default:
		e.ok(area, "%s has the version %s", path, version)
	}
}

// program checks that a file can be executed, and that only root can replace it.
func (e *examination) program(area, path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		e.found(Error, area, "", "%s: %v", path, err)
		return false
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		e.found(Error, area, "", "%s: %v", real, err)
		return false
	case !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0:
		e.found(Error, area, "chmod +x "+real, "%s cannot be executed (mode %v)", real, st.Mode())
		return false
	}
	trusted := e.trusted("permissions", real, st)
	for dir := filepath.Dir(real); trusted; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil {
			trusted = e.trusted("permissions", dir, st)
		}
		if dir == "/" {
			break
		}
	}
	return trusted
}

// serverProgram checks the program that the shim executes, like the shim. It is missing if the shim is
// of a release that had none; otherwise the shim does not print its version.
func (e *examination) serverProgram(area, shim string) bool {
	real, err := filepath.EvalSymlinks(shim)
	if err != nil {
		return false
	}
	for _, path := range early.ServerPlaces(filepath.Dir(real), early.ServerProgram) {
		if _, err := os.Stat(path); err == nil {
			return e.program(area, path)
		}
	}
	return true
}

// pinned returns the stage1 in the name of a link to the shim, or an empty string.
func pinned(name string) string {
	rest, ok := strings.CutPrefix(name, "containerd-shim-rkt-")
	name, ok2 := strings.CutSuffix(rest, "-v1")
	if !ok || !ok2 {
		return ""
	}
	return name
}

// link checks a link to the shim.
func (e *examination) link(area, path string) {
	name := pinned(filepath.Base(path))
	if name == "" {
		return
	}
	if real, err := filepath.EvalSymlinks(path); err != nil {
		e.found(Error, area, "ln -sfn "+shimName+" "+path, "%s is a link that leads nowhere", path)
		return
	} else if shim, _ := filepath.EvalSymlinks(filepath.Join(filepath.Dir(path), shimName)); shim != "" && shim != real {
		e.found(Warning, area, "ln -sfn "+shimName+" "+path, "%s leads to %s, which is not the shim beside it", path, real)
		return
	}
	if from := image.Elsewhere(name, runtime.GOARCH); from != "" && !e.has(name) {
		e.ok(area, "%s is for the stage1 %s, which is not installed: %s", path, name, from)
		return
	}
	if !e.has(name) {
		e.found(Error, area, "rm "+path+", or put the image of "+name+" beside the shim", "%s is for the stage1 %s, which this node does not have", path, name)
		return
	}
	e.ok(area, "%s is for the stage1 %s", path, name)
}
