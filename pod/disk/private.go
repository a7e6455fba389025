package disk

import (
	"encoding/json"
	neturl "net/url"
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
// values of mount options, and annotations of others. Parts of such a text may be secret by themselves: the part
// after "=", and the user and the password of a URL. The zero value has none.
type Secrets struct {
	texts []string

	// Set by compile. A client decides how many secrets there are, so a text is not searched
	// for each of them.
	short map[string]bool // shorter than secretPrefix
	long  []string        // the others, sorted
}

// private has the parts of a config.json that decide what a record may contain.
type private struct {
	Secrets
	ours       map[string]string // annotations
	kubernetes string
}

// AddBundle adds the secrets of the config.json of a bundle, if there is one.
func (s *Secrets) AddBundle(bundle string) { s.texts = append(s.texts, readPrivate(bundle).texts...) }

// AddPod adds the secrets of the bundles of a pod's apps.
func (s *Secrets) AddPod(dir string) {
	records, _ := filepath.Glob(filepath.Join(dir, appsInfoDir, "*", appFile))
	for _, path := range records {
		var app struct{ Bundle string }
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &app) == nil {
			s.AddBundle(app.Bundle)
		}
	}
}

// AddProcess adds the secrets of a process: its arguments and the values of its environment.
func (s *Secrets) AddProcess(args, env []string) {
	s.addArgs(args)
	s.addValues(env)
}

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
	p := private{ours: ours(spec.Annotations)}
	p.AddProcess(spec.Process.Args, spec.Process.Env)
	for _, hooks := range spec.Hooks {
		for _, h := range hooks {
			p.AddProcess(h.Args, h.Env)
		}
	}
	for _, m := range spec.Mounts {
		p.addValues(m.Options)
	}
	for key, value := range spec.Annotations {
		if !strings.HasPrefix(key, annotationPrefix) && !strings.HasPrefix(key, "io.kubernetes.cri.") {
			p.add(value)
		}
	}
	names := []string{spec.Annotations[criNamespace], spec.Annotations[criPod], spec.Annotations[criContainer]}
	if names[0] != "" {
		p.kubernetes = firstOf(strings.TrimSuffix(strings.Join(names, "/"), "/"), 512)
	}
	return p
}

// maxAnnotation is how much is recorded of the key and of the value of an annotation, in bytes.
const maxAnnotation = 256

// ours returns those of some annotations that are for this runtime.
func ours(annotations map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, annotationPrefix) && len(all) < 16 {
			all[firstOf(key, maxAnnotation)] = firstOf(value, maxAnnotation)
		}
	}
	return all
}

// addArgs adds the arguments of a program but not its name.
func (s *Secrets) addArgs(args []string) {
	for _, arg := range args[min(1, len(args)):] {
		s.add(arg)
	}
}

// addValues adds the values of NAME=VALUE. Values that every container has are no secrets.
func (s *Secrets) addValues(list []string) {
	for _, v := range list {
		name, value, ok := strings.Cut(v, "=")
		if ok && !slices.Contains([]string{"PATH", "HOME", "TERM", "HOSTNAME"}, name) {
			s.add(value)
		}
	}
}

// add adds a text and those of its parts that may be secret by themselves.
func (s *Secrets) add(text string) {
	s.texts = append(s.texts, text)
	value := text
	for range 3 { // as in --env=PASSWORD=X
		_, after, ok := strings.Cut(value, "=")
		if !ok {
			break
		}
		value = after
		s.texts = append(s.texts, value)
	}
	for _, after, ok := strings.Cut(text, "://"); ok; _, after, ok = strings.Cut(after, "://") {
		s.addUser(after)
	}
}

// addUser adds the user and the password with which a URL begins after its scheme.
func (s *Secrets) addUser(url string) {
	if end := strings.IndexAny(url, "/?# \t\n\"'"); end >= 0 {
		url = url[:end]
	}
	at := strings.LastIndexByte(url, '@')
	if at < 0 {
		return
	}
	s.texts = append(s.texts, url[:at])
	_, password, _ := strings.Cut(url[:at], ":")
	s.texts = append(s.texts, password)
	if plain, err := neturl.PathUnescape(password); err == nil && plain != password {
		s.texts = append(s.texts, plain)
	}
}

// Redact replaces all secrets in a text, and beginnings of secrets, also if they are quoted.
func (s *Secrets) Redact(text string) string {
	s.compile()
	var b strings.Builder
	for rest := text; ; {
		at, n := s.find(rest)
		if n == 0 {
			return b.String() + rest
		}
		b.WriteString(rest[:at] + redacted)
		rest = rest[at+n:]
	}
}

// compile prepares the search for the secrets that were added since.
func (s *Secrets) compile() {
	if s.short == nil {
		s.short = map[string]bool{}
	}
	if len(s.texts) == 0 {
		return
	}
	for _, secret := range s.texts {
		quoted := strconv.Quote(secret)
		for _, form := range []string{secret, quoted[1 : len(quoted)-1]} {
			switch {
			case len(form) < minSecret || strings.TrimSpace(form) == "":
			case len(form) < secretPrefix:
				s.short[form] = true
			default:
				s.long = append(s.long, form)
			}
		}
	}
	s.texts = nil
	slices.Sort(s.long)
	s.long = slices.Compact(s.long)
}

// find returns the place and the length of the first secret in a text, or a length of 0.
func (s *Secrets) find(text string) (at, n int) {
	for at := range len(text) {
		here := text[at:]
		for n := min(secretPrefix-1, len(here)); n >= minSecret; n-- {
			if s.short[here[:n]] {
				return at, max(n, s.longest(here))
			}
		}
		if n := s.longest(here); n > 0 {
			return at, n
		}
	}
	return 0, 0
}

// longest returns the length of the longest beginning of a long secret with which a text
// begins, or 0 if that is shorter than secretPrefix. In the sorted list the secret is beside
// the text's place.
func (s *Secrets) longest(text string) (n int) {
	i, _ := slices.BinarySearch(s.long, text)
	for _, secret := range s.long[max(0, i-1):min(len(s.long), i+1)] {
		n = max(n, common(text, secret))
	}
	if n < secretPrefix {
		return 0
	}
	return n
}

// common returns the length of the common beginning of two texts.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// firstOf returns the beginning of a text.
func firstOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
