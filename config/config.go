package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config/trusted"
)

const (
	// File is the configuration of a node, unless FileVariable names another one.
	// It need not be there.
	File = "/etc/containerd-shim-rkt/config.toml"
	// FileVariable of the environment names another file, which has to be there.
	FileVariable = "RKT_CONFIG"
	// DataDir is where pods and stage1 trees are kept, unless DataDirVariable names
	// another directory.
	DataDir = "/var/lib/rkt"
	// DataDirVariable of the environment names another data directory.
	DataDirVariable = "RKT_DATA_DIR"
	// DropIns is what follows a file's path in that of its directory of drop-ins.
	DropIns = ".d"
)

// maxText bounds a file, in bytes.
const maxText = 1 << 20

// Config is the configuration of a node. The zero value is that of a node without
// one.
type Config struct {
	// Default is the stage1 of a pod that nothing else chooses for, or empty.
	Default string
	// Stage1s are those with a table of their own, by name.
	Stage1s map[string]Stage1
	// Sets are named sets of fields of config.json, beside the built-in ones.
	Sets map[string][]string
	// ACIs is what concerns all images that are ACIs.
	ACIs ACIs

	file     string              // that was read, or would have been
	places   map[string]position // of keys that were set, by their dotted names
	pointers []pointer           // of all lists
}

// ACIs is what a node says of images that are ACIs. Its paths are absolute.
type ACIs struct {
	// Dependencies are directories in which ACIs are looked for that others depend on.
	Dependencies []string `json:"dependencies,omitempty"`
	// Keyring is the directory of the keys of which one has to have signed each ACI. If
	// it is empty, they need not be signed.
	Keyring string `json:"keyring,omitempty"`
}

// Stage1 is what a node says of a stage1.
type Stage1 struct {
	// Path of the image, absolute. Empty: the image of that name which came with
	// the shim.
	Path string
	// Digest that the image must have, if it is not empty.
	Digest string
	// PodsMayAsk lets pods choose it by their annotation.
	PodsMayAsk bool
	// PodsMustStay keeps pods that a runtime's type has given it from choosing
	// another one.
	PodsMustStay bool
	// Accept are the fields of config.json, as JSON pointers, that it may ignore.
	Accept []string

	accept []placed // as it was written, until all sets are known
}

// Digests returns those that stage1s must have, sorted.
func (c *Config) Digests() []string {
	var all []string
	for _, s := range c.Stage1s {
		if s.Digest != "" {
			all = append(all, s.Digest)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Open reads the configuration of this node.
func Open(getenv func(string) string) (*Config, error) {
	if path := getenv(FileVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("configuration that %s names: %w", FileVariable, err)
		}
		return Read(path)
	}
	return Read(File)
}

// Read reads a file, if it is there, and its drop-ins: those files of the
// directory path.d whose names end in .toml, in the order of their names. What a
// later one sets takes the place of what an earlier one did. What is wrong in them
// is of type Problems.
func Read(path string) (*Config, error) {
	paths, err := filesOf(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	r := reader{config: &Config{file: path}}
	for _, p := range paths {
		text, err := trusted.ReadFile(p, maxText)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		r.read(p, text)
	}
	return r.end()
}

// Parse reads one text that problems call name.
func Parse(name string, text []byte) (*Config, error) {
	r := reader{config: &Config{}}
	r.read(name, text)
	return r.end()
}

// filesOf lists what of a configuration is there.
func filesOf(path string) ([]string, error) {
	var paths []string
	switch _, err := os.Lstat(path); {
	case err == nil:
		paths = append(paths, path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	entries, err := os.ReadDir(path + DropIns) // sorted
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".toml") && name[0] != '.' {
			paths = append(paths, filepath.Join(path+DropIns, name))
		}
	}
	return paths, nil
}
