package disk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sizes of secrets. A shorter text is not taken for one, because it would occur in every
// error. An error may contain only the beginning of a long one.
const (
	minSecret    = 6
	secretPrefix = 12
)

// redacted replaces a text that may be secret.
const redacted = "[redacted]"

// annotationPrefix begins the keys of our annotations, and the keys of CRI that name the pod
// follow.
const (
	annotationPrefix = "io.containerd.rkt.v1"
	criNamespace     = "io.kubernetes.cri.sandbox-namespace"
	criPod           = "io.kubernetes.cri.sandbox-name"
	criContainer     = "io.kubernetes.cri.container-name"
)

// Secrets are texts of containers' specs that may be secret: values of environments, arguments,
// values of mount options, and annotations of others. The zero value has none.
type Secrets struct{ texts []string }

// private has the parts of a config.json that decide what a record may contain.
type private struct {
	Secrets
	ours       map[string]string // annotations
	kubernetes string
}

// AddBundle adds the secrets of the config.json of a bundle, if there is one.
func (s *Secrets) AddBundle(bundle string) { s.texts = append(s.texts, readPrivate(bundle).texts...) }

// readPrivate reads the config.json of a bundle. Without one, there are no secrets that the
// shim could know.
func readPrivate(bundle string) private {
	var spec struct {
		Process struct {
			Args, Env []string
		}
		Annotations map[string]string
		Hooks       map[string][]struct{ Args, Env []string }
		Mounts      []struct{ Options []string }
	}
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if bundle == "" || err != nil {
		return private{}
	}
	_ = json.Unmarshal(text, &spec) // the fields that can be read are filled in
	p := private{ours: map[string]string{}}
	p.addArgs(spec.Process.Args)
	p.addValues(spec.Process.Env)
	for _, hooks := range spec.Hooks {
		for _, h := range hooks {
			p.addArgs(h.Args)
			p.addValues(h.Env)
		}
	}
	for _, m := range spec.Mounts {
		p.addValues(m.Options)
	}
	for key, value := range spec.Annotations {
		switch {
		case strings.HasPrefix(key, annotationPrefix):
			p.ours[firstOf(key, 256)] = firstOf(value, 256)
		case !strings.HasPrefix(key, "io.kubernetes.cri."):
			p.texts = append(p.texts, value)
		}
	}
	names := []string{spec.Annotations[criNamespace], spec.Annotations[criPod], spec.Annotations[criContainer]}
	if names[0] != "" {
		p.kubernetes = firstOf(strings.TrimSuffix(strings.Join(names, "/"), "/"), 512)
	}
	return p
}

// addArgs adds the arguments of a program but not its name.
func (s *Secrets) addArgs(args []string) {
	if len(args) > 0 {
		s.texts = append(s.texts, args[1:]...)
	}
}

// addValues adds the values of NAME=VALUE. Values that every container has are no secrets.
func (s *Secrets) addValues(list []string) {
	for _, v := range list {
		name, value, ok := strings.Cut(v, "=")
		if ok && !slices.Contains([]string{"PATH", "HOME", "TERM", "HOSTNAME"}, name) {
			s.texts = append(s.texts, value)
		}
	}
}

// Redact replaces all secrets in a text, and beginnings of secrets, also if they are quoted.
func (s *Secrets) Redact(text string) string {
	for _, secret := range s.texts {
		quoted := strconv.Quote(secret)
		text = redact(text, secret)
		text = redact(text, quoted[1:len(quoted)-1])
	}
	return text
}

func redact(text, secret string) string {
	if len(secret) < minSecret || strings.TrimSpace(secret) == "" {
		return text
	}
	begins := secret[:min(len(secret), secretPrefix)]
	var b strings.Builder
	for {
		at := strings.Index(text, begins)
		if at < 0 {
			return b.String() + text
		}
		n := 0
		for n < len(secret) && at+n < len(text) && text[at+n] == secret[n] {
			n++
		}
		b.WriteString(text[:at] + redacted)
		text = text[at+n:]
	}
}

// firstOf returns the beginning of a text.
func firstOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
