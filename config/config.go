package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// File is the configuration of a node. It is optional.
	File = "/etc/containerd-shim-rkt/config.toml"
	// FileVariable is the environment variable that names another configuration, which
	// must exist.
	FileVariable = "RKT_CONFIG"
	// DataDir is the directory of pods and stage1 trees.
	DataDir = "/var/lib/rkt"
	// DataDirVariable is the environment variable that names another data directory.
	DataDirVariable = "RKT_DATA_DIR"
	// DropIns is the suffix of the directory of drop-ins: it follows the path of the file.
	DropIns = ".d"
)

// maxText is the largest size of a file, in bytes.
const maxText = 1 << 20

// Config is the configuration of a node. The zero value is the configuration of a node
// without files.
type Config struct {
	// Default is the stage1 of pods for which no client chooses one, or empty.
	Default string
	// RefuseUnknown refuses specs with fields that no known version of the OCI runtime
	// spec has. Otherwise such fields are ignored, and a log line names them.
	RefuseUnknown bool
	// Stage1s are the stage1s with a table of their own, by name.
	Stage1s map[string]Stage1
	// Sets are named sets of fields of config.json, beside the built-in ones.
	Sets map[string][]string
	// ACIs has the settings for all images that are ACIs.
	ACIs ACIs
	// Local has the settings for pods without containerd.
	Local Local

	file     string              // path of the configuration, which need not exist
	places   map[string]position // of keys that were set, by their dotted names
	pointers []pointer           // of all lists
}

// ACIs has the settings for images that are ACIs. Its paths are absolute.
type ACIs struct {
	// Dependencies are the directories in which dependencies of ACIs are searched.
	Dependencies []string `json:"dependencies,omitempty"`
	// Keyring is a directory of keys. One of them must have signed each ACI. If it is
	// empty, ACIs need no signature.
	Keyring string `json:"keyring,omitempty"`
}

// Local has the settings for pods that rktctl makes. The zero value means rktctl's own defaults.
type Local struct {
	// CgroupParent is the cgroup below which pods get theirs, as an absolute path below the root
	// of every hierarchy.
	CgroupParent string
	// Network is the network of pods for which the command line names none.
	Network string
	// CNIConfig is the directory of CNI's network configurations, and CNIPlugins are the
	// directories of its plugins. The paths are absolute.
	CNIConfig  string
	CNIPlugins []string
}

// Stage1 has the settings of a stage1.
type Stage1 struct {
	// Path is the absolute path of the image. If it is empty, the stage1 is the image of
	// that name that came with the shim.
	Path string
	// Digest is the digest that the image must have. If it is empty, any is accepted.
	Digest string
	// PodsMayAsk allows pods to choose this stage1 by their annotation.
	PodsMayAsk bool
	// PodsMustStay forbids pods whose runtime type pins this stage1 to choose another
	// one.
	PodsMustStay bool
	// Accept are the fields of config.json, as JSON pointers, that the stage1 may ignore.
	Accept []string

	accept []placed // the list as written, until all sets are known
}

// Digests returns the digests that stage1s must have, sorted.
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

// Read reads a file, if it exists, and its drop-ins: the files of the directory path.d
// whose names end in .toml, in the order of their names. A later file overrides an earlier
// one. The error for wrong contents is of type Problems.
func Read(path string) (*Config, error) {
	paths, err := filesOf(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	r := reader{config: &Config{file: path}}
	for _, p := range paths {
		text, err := ReadTrusted(p, maxText)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		r.read(p, text)
	}
	return r.end()
}

// filesOf lists the files of a configuration that exist.
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
