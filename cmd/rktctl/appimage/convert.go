package appimage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Converted describes an OCI image that was made of an ACI.
type Converted struct {
	Name   string   `json:"name"`
	Digest string   `json:"digest"`         // of its manifest
	Lost   []string `json:"lost,omitempty"` // parts of the ACI that an OCI image cannot express
}

// files is a layout that is being written: a tar or a directory.
type files interface {
	file(name string, size int64, content io.Reader) error
}

// ConvertArchive writes the OCI image of an ACI as an archive, which containerd can import.
// The same ACI and name give the same bytes. If name is empty, it is the ACI's name with its
// version.
func ConvertArchive(ctx context.Context, file, name string, to io.Writer) (c Converted, err error) {
	defer prefix(&err, "image %s", file)
	w := tar.NewWriter(to)
	if c, err = convert(ctx, file, name, (*inTar)(w)); err != nil {
		return c, err
	}
	return c, w.Close()
}

// ConvertLayout writes the OCI image of an ACI as a layout into a new directory.
func ConvertLayout(ctx context.Context, file, name, dir string) (c Converted, err error) {
	defer prefix(&err, "image %s", file)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return c, err
	}
	if c, err = convert(ctx, file, name, inDir(dir)); err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return c, err
}

// layoutTime is the time of all files of an archive.
var layoutTime = time.Unix(0, 0)

type inTar tar.Writer

func (t *inTar) file(name string, size int64, content io.Reader) error {
	w := (*tar.Writer)(t)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: layoutTime, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

type inDir string

func (d inDir) file(name string, _ int64, content io.Reader) error {
	path := filepath.Join(string(d), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func convert(ctx context.Context, file, name string, to files) (c Converted, err error) {
	a, err := openACI(file)
	if err != nil {
		return c, err
	}
	if err := a.read(ctx); err != nil {
		return c, err
	}
	version, _ := a.manifest.Labels.Get("version")
	c.Name = cmp.Or(name, a.manifest.Name.String()+":"+cmp.Or(version, "latest"))
	config := a.config()
	if a.manifest.App != nil {
		if config.Config.User, err = a.user(); err != nil {
			return c, err
		}
	}
	if c.Lost, err = a.lost(); err != nil {
		return c, err
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Layers: []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: a.layer, Size: a.size}},
	}
	if manifest.Config, err = blob(to, ocispec.MediaTypeImageConfig, config); err != nil {
		return c, err
	}
	r, err := a.open(ctx)
	if err != nil {
		return c, err
	}
	if err = errors.Join(to.file(blobPath(a.layer), a.size, r), r.Close()); err != nil {
		return c, err
	}
	d, err := blob(to, ocispec.MediaTypeImageManifest, manifest)
	if err != nil {
		return c, err
	}
	c.Digest = d.Digest.String()
	d.Platform = &config.Platform
	d.Annotations = map[string]string{containerdName: c.Name, ocispec.AnnotationRefName: c.Name[strings.LastIndexByte(c.Name, ':')+1:]}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d}}
	return c, errors.Join(jsonFile(to, indexFile, index), jsonFile(to, ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}))
}

func blobPath(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

// blob writes a JSON document as a blob.
func blob(to files, mediaType string, v any) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	return d, to.file(blobPath(d.Digest), d.Size, bytes.NewReader(text))
}

func jsonFile(to files, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return to.file(name, int64(len(text)), bytes.NewReader(text))
}

// user returns the user and the group of the app in the words of an OCI image, which has no
// paths of files for them.
func (a *aci) user() (string, error) {
	app := a.manifest.App
	user, group := app.User, app.Group
	if strings.HasPrefix(user, "/") {
		hdr := a.owners[user]
		if hdr == nil {
			return "", invalid("the app's user is the owner of %s, which is no file of the image", user)
		}
		user = strconv.Itoa(hdr.Uid)
	}
	if strings.HasPrefix(group, "/") {
		hdr := a.owners[group]
		if hdr == nil {
			return "", invalid("the app's group is that of %s, which is no file of the image", group)
		}
		group = strconv.Itoa(hdr.Gid)
	}
	return user + ":" + group, nil
}

// lost lists the parts of the app that an OCI image cannot express.
func (a *aci) lost() (all []string, err error) {
	app := a.manifest.App
	if app == nil {
		return nil, nil
	}
	if len(app.EventHandlers) > 0 {
		return nil, fmt.Errorf("eventHandlers of the ACI are not supported: %w", errdefs.ErrNotImplemented)
	}
	for _, i := range app.Isolators {
		all = append(all, fmt.Sprintf("isolator %s %s", i.Name, *i.ValueRaw))
	}
	if len(app.SupplementaryGIDs) > 0 {
		all = append(all, fmt.Sprintf("supplementaryGIDs %v", app.SupplementaryGIDs))
	}
	for _, m := range app.MountPoints {
		if m.ReadOnly {
			all = append(all, fmt.Sprintf("readOnly of the mount point %s", m.Path))
		}
	}
	return all, nil
}
