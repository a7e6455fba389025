// Package containerd reads images of a running containerd: their names, and the blobs in its
// content store. It uses containerd's API and not its client, which is many times as large.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Where ctr looks for a containerd and its images, if it is not told.
const (
	DefaultAddress   = "/run/containerd/containerd.sock"
	DefaultNamespace = "default"
)

// Client is a connection to a running containerd. It implements image.Blobs with containerd's
// content store.
type Client struct {
	conn      *grpc.ClientConn
	address   string
	namespace string
}

var _ image.Blobs = (*Client)(nil)

// Dial returns a connection to the containerd whose socket has this path. The connection is
// made with its first use.
func Dial(address, namespace string) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", address, err)
	}
	return &Client{conn, address, namespace}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// in returns a context with the namespace in its metadata, as containerd expects it.
func (c *Client) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", c.namespace)
}

// Image returns the descriptor of an image by its name.
func (c *Client) Image(ctx context.Context, name string) (image.Descriptor, error) {
	r, err := images.NewImagesClient(c.conn).Get(c.in(ctx), &images.GetImageRequest{Name: name})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return image.Descriptor{}, c.errNoName(ctx, name)
	}
	if err != nil {
		return image.Descriptor{}, fmt.Errorf("containerd at %s: %w", c.address, err)
	}
	return descriptor(r.GetImage().GetTarget()), nil
}

// errNoImage is of errdefs.ErrNotFound.
func (c *Client) errNoImage(name string) error {
	return fmt.Errorf("containerd has no image %[1]s in its namespace %[2]s: pull it (ctr -n %[2]s image pull %[1]s, or nerdctl -n %[2]s pull %[1]s), or name another --namespace: %[3]w",
		name, c.namespace, errdefs.ErrNotFound)
}

// errNoName is errNoImage, or names the image that a short name was meant to be: containerd
// has names such as docker.io/library/busybox:latest, and only its clients complete them.
func (c *Client) errNoName(ctx context.Context, name string) error {
	r, err := images.NewImagesClient(c.conn).List(c.in(ctx), &images.ListImagesRequest{})
	if err != nil {
		return c.errNoImage(name)
	}
	for _, i := range r.GetImages() {
		if full := i.GetName(); strings.HasSuffix("/"+full, "/"+name) || strings.HasSuffix("/"+full, "/"+name+":latest") {
			return fmt.Errorf("containerd has no image %s in its namespace %s, and calls one %s: %w", name, c.namespace, full, errdefs.ErrNotFound)
		}
	}
	return c.errNoImage(name)
}

func descriptor(d *types.Descriptor) image.Descriptor {
	return image.Descriptor{MediaType: d.GetMediaType(), Digest: d.GetDigest(), Size: d.GetSize()}
}

// ByDigest returns the descriptor of an image by its digest, or by the beginning of the
// digest of an image with a name.
func (c *Client) ByDigest(ctx context.Context, digest string) (image.Descriptor, error) {
	if _, digits, _ := strings.Cut(digest, ":"); len(digits) == 64 {
		r, err := content.NewContentClient(c.conn).Info(c.in(ctx), &content.InfoRequest{Digest: digest})
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			return image.Descriptor{}, c.errNoImage(digest)
		}
		if err != nil {
			return image.Descriptor{}, fmt.Errorf("containerd at %s: %w", c.address, err)
		}
		return image.Descriptor{Digest: digest, Size: r.GetInfo().GetSize()}, nil
	}
	r, err := images.NewImagesClient(c.conn).List(c.in(ctx), &images.ListImagesRequest{})
	if err = errgrpc.ToNative(err); err != nil {
		return image.Descriptor{}, fmt.Errorf("containerd at %s: %w", c.address, err)
	}
	found := map[string]image.Descriptor{}
	var names []string
	for _, i := range r.GetImages() {
		if d := descriptor(i.GetTarget()); strings.HasPrefix(d.Digest, digest) {
			found[d.Digest] = d
			names = append(names, i.GetName())
		}
	}
	if len(found) == 0 {
		return image.Descriptor{}, c.errNoImage(digest)
	}
	if len(found) > 1 {
		slices.Sort(names)
		return image.Descriptor{}, fmt.Errorf("%s is the beginning of several digests, those of %s: %w", digest, strings.Join(names, ", "), errdefs.ErrInvalidArgument)
	}
	for _, d := range found {
		return d, nil
	}
	panic("unreachable")
}

// Open reads a blob of containerd's content store.
func (c *Client) Open(ctx context.Context, d image.Descriptor) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(c.in(ctx))
	stream, err := content.NewContentClient(c.conn).Read(ctx, &content.ReadContentRequest{Digest: d.Digest})
	if err != nil {
		cancel()
		return nil, errgrpc.ToNative(err)
	}
	return &reader{stream: stream, cancel: cancel}, nil
}

// reader reads the content of a blob from the stream of containerd's answers.
type reader struct {
	stream content.Content_ReadClient
	cancel context.CancelFunc
	rest   []byte // of the last message
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
			return 0, fmt.Errorf("containerd has the image and not this content of it: pull it again (ctr image pull); the setting discard_unpacked_layers removes it: %w", err)
		}
		if err != nil {
			return 0, err
		}
		r.rest = m.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the stream. It may be called before the end was read.
func (r *reader) Close() error {
	r.cancel()
	return nil
}
