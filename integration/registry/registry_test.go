package registry

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// client serves a registry with one image, and returns a client that knows the proxy only from
// its environment.
func client(t *testing.T) *http.Client {
	t.Helper()
	r := New()
	img := image.Image{Name: "one.example/some/image:v1", Layers: [][]image.File{{{Name: "etc/x", Content: []byte("hello")}}}}
	if err := r.Add(img, ocispec.Platform{OS: "linux", Architecture: "amd64"}, ocispec.Platform{OS: "linux", Architecture: "arm64"}); err != nil {
		t.Fatal(err)
	}
	p, err := Serve(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	env, err := p.Environment(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, e := range env {
		k, v, _ := strings.Cut(e, "=")
		values[k] = v
	}
	ca, err := os.ReadFile(values["SSL_CERT_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in SSL_CERT_FILE")
	}
	proxy, err := url.Parse(values["HTTPS_PROXY"])
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func fetch(t *testing.T, c *http.Client, url string) (*http.Response, []byte) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func TestATagAndItsDigestAreTheIndex(t *testing.T) {
	c := client(t)
	resp, byTag := fetch(t, c, "https://one.example/v2/some/image/manifests/v1")
	d := resp.Header.Get("Docker-Content-Digest")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != ocispec.MediaTypeImageIndex {
		t.Fatalf("%s, type %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	if digest.FromBytes(byTag).String() != d {
		t.Errorf("the digest of what was served is not %s", d)
	}
	if _, byDigest := fetch(t, c, "https://one.example/v2/some/image/manifests/"+d); string(byDigest) != string(byTag) {
		t.Errorf("by digest: %s", byDigest)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	c := client(t)
	for _, path := range []string{"some/image/manifests/v2", "other/image/manifests/v1", "some/image/blobs/v1", "some/image/tags/list"} {
		if resp, _ := fetch(t, c, "https://one.example/v2/"+path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestNobodyIsConnectedToAnotherHost(t *testing.T) {
	c := client(t)
	resp, err := c.Get("https://two.example/v2/")
	if err == nil {
		resp.Body.Close()
		t.Fatalf("two.example answers %s", resp.Status)
	}
	if !strings.Contains(err.Error(), "Bad Gateway") {
		t.Error(err)
	}
}

func TestANameWithoutHostOrTagIsRefused(t *testing.T) {
	for _, name := range []string{"busybox", "busybox:1", "host:5000/busybox"} {
		if err := New().Add(image.Image{Name: name}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
