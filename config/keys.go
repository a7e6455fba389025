package config

import (
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// Names of keys. A list is in the order of docs/config.md.
const (
	keyDefault       = "default"
	keyRefuseUnknown = "refuse_unknown_fields"
	keyStage1        = "stage1"
	keyFields        = "fields"
	keyACI           = "aci"
	keyLocal         = "local"

	keyPath         = "path"
	keyDigest       = "digest"
	keyPodsMayAsk   = "pods_may_ask"
	keyPodsMayLeave = "pods_may_leave"
	keyAccept       = "accept"

	keyDependencies = "dependencies"
	keyKeyring      = "keyring"

	keyCgroupParent = "cgroup_parent"
	keyNetwork      = "network"
	keyCNIConfig    = "cni_config"
	keyCNIPlugins   = "cni_plugins"
)

func topKeys() []string {
	return []string{keyDefault, keyRefuseUnknown, keyStage1, keyFields, keyACI, keyLocal}
}

func aciKeys() []string { return []string{keyDependencies, keyKeyring} }

func localKeys() []string {
	return []string{keyCgroupParent, keyNetwork, keyCNIConfig, keyCNIPlugins}
}

func stage1Keys() []string {
	return []string{keyPath, keyDigest, keyPodsMayAsk, keyPodsMayLeave, keyAccept}
}

// known reports whether a key is valid. If not, it adds a problem.
func (r *reader) known(path []string, at position) bool {
	valid := topKeys()
	word := path[0]
	depth := 1
	if slices.Contains(valid, word) {
		depth = map[string]int{keyDefault: 1, keyRefuseUnknown: 1, keyFields: 2, keyStage1: 3, keyACI: 2, keyLocal: 2}[word]
		if word == keyStage1 && len(path) >= 2 && !r.isName(path[1], at) {
			return false
		}
		switch {
		case word == keyStage1 && len(path) >= 3:
			valid, word = stage1Keys(), path[2]
		case word == keyACI && len(path) >= 2:
			valid, word = aciKeys(), path[1]
		case word == keyLocal && len(path) >= 2:
			valid, word = localKeys(), path[1]
		}
	}
	switch {
	case !slices.Contains(valid, word):
		r.problem(at, "unknown key %s: the nearest valid one is %s (valid: %s)", dotted(path), spelling.Nearest(word, valid), strings.Join(valid, ", "))
	case len(path) > depth:
		r.problem(at, "unknown key %s: %s has no keys of its own", dotted(path), dotted(path[:depth]))
	default:
		return true
	}
	return false
}

func (r *reader) isName(name string, at position) bool {
	if IsName(name) {
		return true
	}
	r.problem(at, "stage1 %q: a name has small letters, digits and hyphens only", name)
	return false
}

// ofStage1 reads a key of a stage1's table.
func (r *reader) ofStage1(path []string, at position, v *unstable.Node) {
	name := path[1]
	switch path[2] {
	case keyPath:
		if text, ok := r.text(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.Path = r.absolute(path, placed{text, at}) })
		}
	case keyDigest:
		if text, ok := r.text(path, at, v); ok {
			if !isDigest(text) {
				r.problem(at, "%s: %.40q is not \"sha512-\" and 128 digits of 0-9 and a-f; rktctl stage1 list shows those of the images here", dotted(path), text)
			}
			r.edit(name, func(s *Stage1) { s.Digest = text })
		}
	case keyPodsMayAsk:
		if b, ok := r.boolean(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.PodsMayAsk = b })
		}
	case keyPodsMayLeave:
		if b, ok := r.boolean(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.PodsMustStay = !b })
		}
	case keyAccept:
		if list, ok := r.list(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.accept = list })
		}
	}
}

// ofACIs reads a key of the table of ACIs.
func (r *reader) ofACIs(path []string, at position, v *unstable.Node) {
	switch path[1] {
	case keyDependencies:
		if list, ok := r.list(path, at, v); ok {
			r.config.ACIs.Dependencies = nil
			for _, e := range list {
				r.config.ACIs.Dependencies = append(r.config.ACIs.Dependencies, r.absolute(path, e))
			}
		}
	case keyKeyring:
		if text, ok := r.text(path, at, v); ok {
			r.config.ACIs.Keyring = r.absolute(path, placed{text, at})
		}
	}
}

// ofLocal reads a key of the table of local pods.
func (r *reader) ofLocal(path []string, at position, v *unstable.Node) {
	if path[1] == keyCNIPlugins {
		if list, ok := r.list(path, at, v); ok {
			r.config.Local.CNIPlugins = nil
			for _, e := range list {
				r.config.Local.CNIPlugins = append(r.config.Local.CNIPlugins, r.absolute(path, e))
			}
		}
		return
	}
	text, ok := r.text(path, at, v)
	if !ok {
		return
	}
	switch path[1] {
	case keyCgroupParent:
		r.config.Local.CgroupParent = r.absolute(path, placed{text, at})
	case keyNetwork:
		r.config.Local.Network = text
	case keyCNIConfig:
		r.config.Local.CNIConfig = r.absolute(path, placed{text, at})
	}
}

// absolute returns a path without superfluous elements. It adds a problem for a
// relative path.
func (r *reader) absolute(key []string, e placed) string {
	if !filepath.IsAbs(e.text) {
		r.problem(e.at, "%s: %q is not an absolute path", dotted(key), e.text)
	}
	return filepath.Clean(e.text)
}

// set reads a named set of fields.
func (r *reader) set(path []string, at position, v *unstable.Node) {
	name := path[1]
	if !IsName(name) {
		r.problem(at, "set of fields %q: a name has small letters, digits and hyphens only", name)
		return
	}
	if builtinSet(name) != nil {
		r.problem(at, "the set of fields %s comes with the shim and cannot be changed: take another name", name)
		return
	}
	list, ok := r.list(path, at, v)
	if !ok {
		return
	}
	pointers := make([]string, 0, len(list))
	for _, e := range list {
		if !isPointer(e.text) {
			r.problem(e.at, "%s: %q is not a JSON pointer into config.json, such as \"/process/rlimits\"", dotted(path), e.text)
		}
		pointers = append(pointers, e.text)
		r.config.pointers = append(r.config.pointers, pointer{dotted(path), e})
	}
	if r.config.Sets == nil {
		r.config.Sets = map[string][]string{}
	}
	r.config.Sets[name] = pointers
}

// edit changes the settings of a stage1. If the stage1 has no settings, edit makes
// them.
func (r *reader) edit(name string, change func(*Stage1)) {
	if r.config.Stage1s == nil {
		r.config.Stage1s = map[string]Stage1{}
	}
	s := r.config.Stage1s[name]
	change(&s)
	r.config.Stage1s[name] = s
}

func (r *reader) text(path []string, at position, v *unstable.Node) (string, bool) {
	if v.Kind != unstable.String {
		r.problem(at, "%s has to be a text in quotes", dotted(path))
		return "", false
	}
	return string(v.Data), true
}

func (r *reader) boolean(path []string, at position, v *unstable.Node) (value, ok bool) {
	if v.Kind != unstable.Bool {
		r.problem(at, "%s has to be true or false", dotted(path))
		return false, false
	}
	return string(v.Data) == "true", true
}

func (r *reader) list(path []string, at position, v *unstable.Node) ([]placed, bool) {
	if v.Kind != unstable.Array {
		r.problem(at, "%s has to be a list of texts in quotes", dotted(path))
		return nil, false
	}
	list := []placed{}
	for items := v.Children(); items.Next(); {
		item := items.Node()
		if item.Kind == unstable.Comment {
			continue
		}
		text, ok := r.text(path, at, item)
		if !ok {
			return nil, false
		}
		list = append(list, placed{text, r.place(item.Raw)})
	}
	return list, true
}

// IsName reports whether a stage1 or a set of fields can have this name.
func IsName(name string) bool {
	notPart := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return name != "" && !strings.ContainsFunc(name, notPart)
}

// isPointer reports whether a text is a JSON pointer to a member of an object.
func isPointer(text string) bool {
	return len(text) > 1 && text[0] == '/' && !strings.HasSuffix(text, "/")
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha512-")
	if !ok || len(digits) != 128 || strings.ToLower(digits) != digits {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}
