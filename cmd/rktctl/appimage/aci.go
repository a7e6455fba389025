package appimage

import (
	"archive/tar"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// aci is a file with an ACI of an app.
type aci struct {
	file     string
	manifest *schema.ImageManifest
	kept     map[string]bool // the pathWhitelist with all parents; nil if every path is kept

	// Set by read.
	digest string                 // appc's image id: the SHA-512 of the tar
	layer  digest.Digest          // of the tar of the root file system
	size   int64                  // of that
	owners map[string]*tar.Header // files whose owners are the app's user or group
}

// findACI finds the image in an ACI. It reads the ACI once, and unpack reads it again.
func findACI(ctx context.Context, file string) (*source, error) {
	a, err := openACI(file)
	if err != nil {
		return nil, err
	}
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	s := &source{digest: a.digest, config: a.config()}
	if a.manifest.App != nil {
		s.app = &appcApp{*a.manifest.App}
	}
	s.layers = []layer{{name: "rootfs", open: a.open}}
	return s, nil
}

// openACI reads an ACI's manifest.
func openACI(file string) (*aci, error) {
	f, err := image.OpenACI(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := tar.NewReader(io.LimitReader(f, defaultLimits().bytes))
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, invalid("it is not an ACI: it has no manifest")
		}
		if err != nil {
			return nil, invalid("it is not an ACI: %v", err)
		}
		if path.Clean(hdr.Name) != "manifest" || hdr.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(r, maxDocument))
		if err != nil {
			return nil, invalid("it is not an ACI: %v", err)
		}
		a := &aci{file: file, owners: map[string]*tar.Header{}}
		if a.manifest, err = parseACI(text); err != nil {
			return nil, err
		}
		a.kept = withParents(a.manifest.PathWhitelist)
		return a, nil
	}
}

// parseACI parses the manifest of an ACI. It refuses an image that needs others.
func parseACI(text []byte) (*schema.ImageManifest, error) {
	m, err := unmarshalACI(text)
	if err != nil {
		return m, err
	}
	if len(m.Dependencies) > 0 {
		var names []string
		for _, d := range m.Dependencies {
			names = append(names, d.ImageName.String())
		}
		return m, fmt.Errorf("it depends on other ACIs (%s), which is not supported: build it whole: %w", strings.Join(names, ", "), errdefs.ErrNotImplemented)
	}
	system, machine, errMachine := types.ToAppcOSArch(runtime.GOOS, runtime.GOARCH, "")
	for name, mine := range map[string]string{"os": system, "arch": machine} {
		if its, ok := m.Labels.Get(name); errMachine == nil && ok && its != mine {
			return m, errOtherMachine(its)
		}
	}
	return m, nil
}

// unmarshalACI unmarshals a manifest. appc's library refuses isolators that it does not know
// without their names.
func unmarshalACI(text []byte) (*schema.ImageManifest, error) {
	var names struct {
		App struct {
			Isolators []struct{ Name types.ACIdentifier }
		}
	}
	if json.Unmarshal(text, &names) == nil {
		for _, i := range names.App.Isolators {
			if !isKnown(i.Name) {
				return nil, fmt.Errorf("isolator %s: it is not supported: %w", i.Name, errdefs.ErrNotImplemented)
			}
		}
	}
	m, err := image.UnmarshalManifest(text)
	if err != nil {
		return nil, invalid("manifest: not an appc ImageManifest: %v", err)
	}
	return m, nil
}

func isKnown(name types.ACIdentifier) bool {
	for _, set := range []map[types.ACIdentifier]struct{}{types.ResourceIsolatorNames, types.LinuxIsolatorNames, types.UnixIsolatorNames} {
		if _, ok := set[name]; ok {
			return true
		}
	}
	return false
}

func withParents(paths []string) map[string]bool {
	if len(paths) == 0 {
		return nil
	}
	all := map[string]bool{}
	for _, p := range paths {
		for p = path.Clean("/" + p); p != "/"; p = path.Dir(p) {
			all[p[1:]] = true
		}
	}
	return all
}

// read reads the ACI to its end and sets its digests.
func (a *aci) read(ctx context.Context) error {
	h := digest.SHA256.Digester()
	n := &counter{w: h.Hash()}
	whole, err := a.rewrite(ctx, n)
	a.digest, a.layer, a.size = whole, h.Digest(), n.n
	return err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// open returns the tar of the root file system. A goroutine writes it until Close.
func (a *aci) open(ctx context.Context) (io.ReadCloser, error) {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := a.rewrite(ctx, w)
		w.CloseWithError(err)
	}()
	return &rewritten{r, done}, nil
}

type rewritten struct {
	*io.PipeReader
	done chan struct{}
}

func (r *rewritten) Close() error {
	err := r.PipeReader.Close()
	<-r.done
	return err
}

// rewrite writes the tar of an ACI's root file system: the entries below rootfs, without that
// directory. It is the same for the same ACI. rewrite returns the ACI's image id.
func (a *aci) rewrite(ctx context.Context, to io.Writer) (id string, err error) {
	f, err := image.OpenACI(a.file)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	left := defaultLimits()
	whole := sha512.New()
	stream := &io.LimitedReader{R: f, N: left.bytes + 1}
	tee := io.TeeReader(stream, whole)
	r, w := tar.NewReader(tee), tar.NewWriter(to)
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, err = left.count(hdr)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = a.copy(w, hdr, r)
		}
		if err != nil {
			return "", a.errRead(stream, err)
		}
	}
	if _, err := io.Copy(io.Discard, tee); err != nil || stream.N <= 0 {
		return "", a.errRead(stream, err)
	}
	return "sha512-" + hex.EncodeToString(whole.Sum(nil)), w.Close()
}

func (a *aci) errRead(stream *io.LimitedReader, err error) error {
	if stream.N <= 0 {
		return errTooLarge(defaultLimits().bytes)
	}
	return fmt.Errorf("read the ACI: %w", err)
}

// copy writes an entry of the root file system.
func (a *aci) copy(w *tar.Writer, hdr *tar.Header, r io.Reader) error {
	name, ok := inside("rootfs", hdr.Name)
	switch {
	case hdr.Typeflag == tar.TypeXGlobalHeader || path.Clean(hdr.Name) == "." || path.Clean(hdr.Name) == "manifest":
		return nil
	case !ok:
		return invalid("entry %q: an ACI holds \"manifest\" and what is below \"rootfs\", and nothing else", hdr.Name)
	case name == "." || a.kept != nil && !a.kept[name]:
		return nil
	}
	if app := a.manifest.App; app != nil && hdr.Typeflag != tar.TypeSymlink && (app.User == "/"+name || app.Group == "/"+name) {
		a.owners["/"+name] = hdr
	}
	its := *hdr
	its.Name, its.Format = name, tar.FormatUnknown
	its.Uname, its.Gname = "", "" // names of the machine that has built it
	if hdr.Typeflag == tar.TypeDir {
		its.Name += "/"
	}
	if hdr.Typeflag == tar.TypeLink {
		if its.Linkname, ok = inside("rootfs", hdr.Linkname); !ok {
			return invalid("entry %q: a hard link to %q, which is not a file of its root file system", hdr.Name, hdr.Linkname)
		}
	}
	if err := w.WriteHeader(&its); err != nil {
		return invalid("entry %q: %v", hdr.Name, err)
	}
	_, err := io.Copy(w, r)
	return err
}

// inside returns a name relative to a directory. It refuses names with "..".
func inside(dir, name string) (string, bool) {
	clean := path.Clean(name)
	if clean == dir {
		return ".", true
	}
	rest, ok := strings.CutPrefix(clean, dir+"/")
	return rest, ok && !slices.Contains(strings.Split(name, "/"), "..")
}

// config returns the configuration of an OCI image that has as much of the ACI as it can
// express.
func (a *aci) config() ocispec.Image {
	c := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{a.layer}}}
	c.OS, c.Architecture = runtime.GOOS, runtime.GOARCH
	if created, ok := a.manifest.Annotations.Get("created"); ok {
		if at, err := time.Parse(time.RFC3339, created); err == nil {
			c.Created = &at
		}
	}
	c.Author, _ = a.manifest.Annotations.Get("authors")
	for _, n := range a.manifest.Annotations {
		if c.Config.Labels == nil {
			c.Config.Labels = map[string]string{}
		}
		c.Config.Labels[n.Name.String()] = n.Value
	}
	app := a.manifest.App
	if app == nil {
		return c
	}
	c.Config.Entrypoint, c.Config.WorkingDir = app.Exec, app.WorkingDirectory
	for _, e := range app.Environment {
		c.Config.Env = append(c.Config.Env, e.Name+"="+e.Value)
	}
	for _, m := range app.MountPoints {
		if c.Config.Volumes == nil {
			c.Config.Volumes = map[string]struct{}{}
		}
		c.Config.Volumes[m.Path] = struct{}{}
	}
	for _, p := range app.Ports {
		if c.Config.ExposedPorts == nil {
			c.Config.ExposedPorts = map[string]struct{}{}
		}
		c.Config.ExposedPorts[fmt.Sprintf("%d/%s", p.Port, p.Protocol)] = struct{}{}
	}
	return c
}
