package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxImports bounds the files of a configuration, because imports can form a circle.
const maxImports = 64

// handler is a runtime handler of containerd's CRI.
type handler struct {
	Type        string   `toml:"runtime_type"`
	Path        string   `toml:"runtime_path"`
	Sandboxer   string   `toml:"sandboxer"`
	SandboxMode string   `toml:"sandbox_mode"` // of containerd 1.7
	Annotations []string `toml:"pod_annotations"`
	Options     map[string]any

	name  string
	lines map[string]string // of keys, as FILE:LINE; the empty key is the table
}

// at returns the place of a key, or of the table.
func (h *handler) at(key string) string {
	if at := h.lines[key]; at != "" {
		return at
	}
	return h.lines[""]
}

// daemonConfig is containerd's configuration, of all its files.
type daemonConfig struct {
	files    []string
	imported map[string]bool // files with handlers that were imported
	handlers map[string]*handler
	problems []string
}

// criPlugins are the names of the plugin with the handlers, by version of the configuration.
var criPlugins = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// configFile has the parts of a file that matter here.
type configFile struct {
	Imports []string
	Plugins map[string]struct {
		Containerd struct {
			Runtimes map[string]handler
		}
	}
}

// readDaemonConfig reads a configuration with its imports. A later file overrides single keys.
func readDaemonConfig(path string) (*daemonConfig, error) {
	c := &daemonConfig{imported: map[string]bool{}, handlers: map[string]*handler{}}
	return c, c.read(path, false)
}

func (c *daemonConfig) read(path string, imported bool) error {
	if slices.Contains(c.files, path) || len(c.files) == maxImports {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c.files = append(c.files, path)
	var f configFile
	if err := toml.Unmarshal(text, &f); err != nil {
		line := 0
		if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
			line, _ = d.Position()
		}
		return fmt.Errorf("%s:%d: %v", path, line, err)
	}
	for _, plugin := range criPlugins {
		for name, h := range f.Plugins[plugin].Containerd.Runtimes {
			c.add(name, h, linesOf(path, string(text), name))
			c.imported[path] = imported
		}
	}
	for _, pattern := range f.Imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		paths, err := filepath.Glob(pattern)
		if err == nil && len(paths) == 0 && !strings.ContainsAny(pattern, "*?[") {
			err = fs.ErrNotExist
		}
		if err != nil {
			c.problems = append(c.problems, fmt.Sprintf("%s imports %s: %v", path, pattern, err))
		}
		for _, p := range paths {
			if err := c.read(p, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the keys of a handler in one file to those in earlier files.
func (c *daemonConfig) add(name string, h handler, lines map[string]string) {
	old := c.handlers[name]
	if old == nil {
		h.name, h.lines = name, lines
		c.handlers[name] = &h
		return
	}
	for key, at := range lines {
		old.lines[key] = at
		switch key {
		case "runtime_type":
			old.Type = h.Type
		case "runtime_path":
			old.Path = h.Path
		case "sandboxer":
			old.Sandboxer = h.Sandboxer
		case "sandbox_mode":
			old.SandboxMode = h.SandboxMode
		case "pod_annotations":
			old.Annotations = h.Annotations
		}
	}
	if len(h.Options) > 0 {
		old.Options = h.Options
	}
}

var (
	tableLine = regexp.MustCompile(`^\s*\[(.*)\]\s*(#.*)?$`)
	keyLine   = regexp.MustCompile(`^\s*([A-Za-z_]+)\s*=`)
)

// linesOf finds the places of a handler's keys in a file. The decoder reports no places of
// what it could read.
func linesOf(path, text, name string) map[string]string {
	lines := map[string]string{"": path}
	inside := false
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", path, i+1)
		if m := tableLine.FindStringSubmatch(line); m != nil {
			table := strings.NewReplacer(`"`, "", `'`, "", " ", "").Replace(m[1])
			inside = strings.HasSuffix(table, "containerd.runtimes."+name)
			switch {
			case inside:
				lines[""] = at
			case strings.HasSuffix(table, "containerd.runtimes."+name+".options"):
				lines["options"] = at
			}
		} else if m := keyLine.FindStringSubmatch(line); m != nil && inside {
			lines[m[1]] = at
		}
	}
	return lines
}
