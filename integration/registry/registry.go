// Package registry serves images from memory under the names of any registries, such as
// ghcr.io, to clients that use an HTTPS proxy. No request leaves the machine. It serves pulls
// only.
package registry

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Registry is a set of repositories on some hosts. Add images before it is served.
type Registry struct {
	hosts map[string]bool
	blobs map[string]blob          // by repository and digest
	tags  map[string]digest.Digest // by repository and tag
}

type blob struct {
	mediaType string
	content   []byte
}

// New returns a registry without images.
func New() *Registry {
	return &Registry{hosts: map[string]bool{}, blobs: map[string]blob{}, tags: map[string]digest.Digest{}}
}

// Add adds an image, for some platforms. Its name is HOST/REPOSITORY:TAG.
func (r *Registry) Add(img image.Image, platforms ...ocispec.Platform) error {
	host, _, hasHost := strings.Cut(img.Name, "/")
	colon := strings.LastIndexByte(img.Name, ':')
	if !hasHost || colon < len(host) {
		return fmt.Errorf("image %s: not of the form HOST/REPOSITORY:TAG", img.Name)
	}
	repository, tag := img.Name[:colon], img.Name[colon+1:]
	index, err := image.Index(img, platforms, func(d ocispec.Descriptor, content []byte) error {
		r.blobs[key(repository, d.Digest.String())] = blob{d.MediaType, content}
		return nil
	})
	if err != nil {
		return fmt.Errorf("image %s: %w", img.Name, err)
	}
	r.hosts[host] = true
	r.tags[key(repository, tag)] = index.Digest
	return nil
}

func key(repository, reference string) string { return repository + " " + reference }

// route matches the two paths of the distribution API that pulls need.
var route = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([^/]+)$`)

// ServeHTTP answers requests, as the host that the request names.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.Error(w, "this registry serves pulls only", http.StatusMethodNotAllowed)
		return
	}
	if req.URL.Path == "/v2/" {
		return
	}
	m := route.FindStringSubmatch(req.URL.Path)
	if m == nil {
		http.NotFound(w, req)
		return
	}
	host, _, _ := strings.Cut(req.Host, ":")
	repository, reference := host+"/"+m[1], m[3]
	if d, ok := r.tags[key(repository, reference)]; ok && m[2] == "manifests" {
		reference = d.String()
	}
	b, ok := r.blobs[key(repository, reference)]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", b.mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b.content)))
	w.Header().Set("Docker-Content-Digest", reference)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b.content))
}
