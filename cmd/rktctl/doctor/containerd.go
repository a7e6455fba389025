package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// containerdConfig is the usual path of containerd's configuration.
const containerdConfig = "/etc/containerd/config.toml"

// ourType begins the types of our runtimes.
const ourType = "io.containerd.rkt"

// containerd checks the daemon, its environment and its handlers.
func (e *examination) containerd() {
	const area = "containerd"
	major := e.daemonVersion(area)
	if e.daemon != nil {
		for _, name := range []string{"RKT_DATA_DIR", "RKT_CONFIG"} {
			if theirs, ours := e.daemon.env[name], e.Getenv(name); theirs != ours {
				e.found(Warning, area, fmt.Sprintf("call %s=%s rktctl …", name, theirs),
					"containerd (process %d) has %s=%q, and rktctl was called with %q: they do not look at the same pods", e.daemon.pid, name, theirs, ours)
			}
		}
	}
	path := e.configPath()
	c, err := readDaemonConfig(path)
	if errors.Is(err, fs.ErrNotExist) && len(c.files) == 0 {
		e.ok(area, "%s does not exist: there are no handlers for Kubernetes; ctr, nerdctl and Docker need none", path)
		return
	}
	if err != nil {
		e.found(Error, area, "correct the file, then systemctl restart containerd", "%v", err)
		return
	}
	for _, p := range c.problems {
		e.found(Warning, area, "correct imports in "+path, "%s", p)
	}
	e.forgotten(area, path, c)
	ours := 0
	for _, name := range slices.Sorted(maps.Keys(c.handlers)) {
		h := c.handlers[name]
		if h.isOurs() {
			ours++
			e.handler(c, h, major)
		}
	}
	if ours == 0 {
		e.ok(area, "%s has no handler for this runtime: Kubernetes cannot use it; ctr, nerdctl and Docker need none", path)
	}
}

// configPath returns the path of containerd's configuration.
func (e *examination) configPath() string {
	path := e.Containerd
	if path == "" && e.daemon != nil {
		path = e.daemon.config()
	}
	return cmp.Or(path, containerdConfig)
}

// isOurs reports whether a handler is for this runtime.
func (h *handler) isOurs() bool {
	return strings.HasPrefix(h.Type, ourType) || strings.Contains(filepath.Base(h.Path), "containerd-shim-rkt")
}

// daemonVersion checks the daemon's version, and returns its first number or 0.
func (e *examination) daemonVersion(area string) int {
	path := ""
	if e.daemon != nil {
		path = e.daemon.exe
	} else {
		path, _ = e.lookPath("containerd")
	}
	if path == "" {
		e.found(Warning, area, "systemctl start containerd", "containerd does not run, and is not in PATH")
		return 0
	}
	text := e.versionOf(path, "--version")
	major, minor := majorMinor(text)
	running := "does not run"
	if e.daemon != nil {
		running = fmt.Sprintf("runs as process %d", e.daemon.pid)
	}
	switch {
	case major == 0:
		e.found(Warning, area, path+" --version", "the version of %s is not known; it %s", path, running)
	case major < 1 || major == 1 && minor < 6:
		e.found(Error, area, "install containerd 1.6 or later", "containerd %d.%d is older than 1.6; it %s", major, minor, running)
	default:
		e.ok(area, "%s, version %d.%d, %s", path, major, minor, running)
	}
	return major
}

// forgotten finds drop-ins with our handlers that containerd does not read.
func (e *examination) forgotten(area, path string, c *daemonConfig) {
	pattern := filepath.Join(filepath.Dir(path), "conf.d", "*.toml")
	paths, _ := filepath.Glob(pattern)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(text), ourType) && !slices.Contains(c.files, p) {
			e.found(Warning, area, fmt.Sprintf("%s:1: add imports = [%q] above all tables, then systemctl restart containerd", path, pattern), "%s is not read by containerd", p)
		}
	}
}

// handler checks one of our handlers.
func (e *examination) handler(c *daemonConfig, h *handler, major int) {
	const area = "handler"
	before := len(e.findings)
	e.handlerProgram(area, h)
	sandboxer := cmp.Or(h.Sandboxer, h.SandboxMode, "podsandbox")
	key := "sandboxer"
	if h.Sandboxer == "" {
		key = "sandbox_mode"
	}
	switch {
	case !slices.Contains([]string{"podsandbox", "shim"}, sandboxer):
		e.found(Error, area, h.at(key)+`: "podsandbox" (with a pause container) or "shim" (without)`, "handler %s: there is no %s %q: every pod fails", h.name, key, sandboxer)
	case sandboxer == "shim" && (h.Sandboxer == "" || major == 1):
		e.found(Error, area, h.at(key)+`: sandboxer = "podsandbox"`, "handler %s: pods without a pause container need containerd 2.0 or later", h.name)
	}
	if sandboxer == "podsandbox" {
		for _, pattern := range []string{"io.containerd.rkt.v1/*", "io.containerd.rkt.v1.*"} {
			if !slices.Contains(h.Annotations, pattern) {
				e.found(Warning, area, h.at("pod_annotations")+fmt.Sprintf(": add %q to pod_annotations", pattern), "handler %s: annotations %s of pods do not reach the shim, and are ignored", h.name, pattern)
			}
		}
	}
	if len(h.Options) > 0 {
		e.found(Warning, area, h.at("options")+": remove the table of options", "handler %s: with options, containerd up to 2.4 cannot run pods with user namespaces under this runtime", h.name)
	}
	if file, _, _ := strings.Cut(h.at(""), ":"); major == 1 && c.imported[file] {
		e.found(Warning, area, "move the table from "+file+" to containerd's own configuration", "handler %s: an imported table replaces all other settings of CRI under containerd 1.x", h.name)
	}
	if len(e.findings) == before {
		e.ok(area, "%s: %s, sandboxer %s", h.name, h.Type, sandboxer)
	}
}

// handlerProgram checks the program that containerd executes for a handler.
func (e *examination) handlerProgram(area string, h *handler) {
	at := h.at("runtime_type")
	path, name := h.Path, filepath.Base(h.Path)
	if path != "" {
		at = h.at("runtime_path")
		if _, err := os.Stat(path); err != nil {
			e.found(Error, area, at+": the path of "+shimName+", or no runtime_path", "handler %s: its shim cannot be executed: %v", h.name, err)
			return
		}
	} else {
		words := strings.Split(h.Type, ".")
		if len(words) < 2 {
			e.found(Error, area, at+`: runtime_type = "io.containerd.rkt.v1"`, "handler %s: %q is no type of a runtime", h.name, h.Type)
			return
		}
		name = fmt.Sprintf("containerd-shim-%s-%s", words[len(words)-2], words[len(words)-1])
		var err error
		if path, err = e.lookPath(name); path == "" || err != nil {
			fix := at + `: runtime_type = "io.containerd.rkt.v1", or io.containerd.rkt-NAME.v1`
			if shim, _ := e.lookPath(shimName); pinned(name) != "" && shim != "" && e.has(pinned(name)) {
				fix = fmt.Sprintf("ln -sfn %s %s", shimName, filepath.Join(filepath.Dir(shim), name))
			}
			e.found(Error, area, fix, "handler %s: containerd executes %s for %s, which is in no directory of its PATH or leads nowhere", h.name, name, h.Type)
			return
		}
	}
	stage1 := pinned(name)
	if stage1 != "" && !e.has(stage1) {
		fix := "put the image of " + stage1 + " beside the shim"
		if from := image.Elsewhere(stage1, runtime.GOARCH); from != "" {
			fix = from
		}
		e.found(Error, area, at+": a stage1 of `rktctl stage1 list`, or "+fix, "handler %s: this node has no stage1 %s", h.name, stage1)
	}
	for i := range e.Stage1s {
		s := &e.Stage1s[i]
		s.InUse = s.InUse || s.Name == stage1
	}
}

// has reports whether the node has a stage1. The shim looks for images beside itself, which
// may be at another place than rktctl.
func (e *examination) has(name string) bool {
	if slices.ContainsFunc(e.Stage1s, func(s Stage1) bool { return s.Name == name }) {
		return true
	}
	shim, err := e.lookPath(shimName)
	if real, realErr := filepath.EvalSymlinks(shim); err == nil && realErr == nil {
		for _, place := range []string{"stage1", "../libexec/containerd-shim-rkt/stage1"} {
			if _, err := os.Stat(filepath.Join(filepath.Dir(real), place, name, "manifest")); err == nil {
				return true
			}
		}
	}
	return false
}

// Handlers are the runtime handlers of this runtime in containerd's configuration, for a
// report. Other parts of that configuration may be secret.
type Handlers struct {
	Files    []string  `json:"files"`
	Handlers []Handler `json:"handlers"`
}

// Handler is one of them.
type Handler struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Path        string   `json:"path,omitempty"`
	Sandboxer   string   `json:"sandboxer,omitempty"`
	Annotations []string `json:"podAnnotations,omitempty"`
	Options     []string `json:"options,omitempty"` // their names
	At          string   `json:"at"`                // FILE:LINE
}

// Handlers returns our handlers of a node.
func (n Node) Handlers() (*Handlers, error) {
	e := &examination{Node: n}
	e.daemon = e.findDaemon()
	c, err := readDaemonConfig(e.configPath())
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && len(c.files) == 0) {
		return nil, err
	}
	all := &Handlers{Files: append([]string{}, c.files...), Handlers: []Handler{}}
	for _, name := range slices.Sorted(maps.Keys(c.handlers)) {
		if h := c.handlers[name]; h.isOurs() {
			all.Handlers = append(all.Handlers, Handler{
				name, h.Type, h.Path, cmp.Or(h.Sandboxer, h.SandboxMode), h.Annotations, slices.Sorted(maps.Keys(h.Options)), h.at(""),
			})
		}
	}
	return all, nil
}
