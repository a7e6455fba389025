package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// containerd is a connection to a running containerd. It implements image.Blobs with
// containerd's content store.
type containerd struct {
	conn      *grpc.ClientConn
	address   string
	namespace string
}

var _ image.Blobs = (*containerd)(nil)

func dialContainerd(address, namespace string) (*containerd, error) {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", address, err)
	}
	return &containerd{conn, address, namespace}, nil
}

func (c *containerd) close() error { return c.conn.Close() }

// in returns a context with the namespace in its metadata, as containerd expects it.
func (c *containerd) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", c.namespace)
}

// image returns the descriptor of an image by its name.
func (c *containerd) image(ctx context.Context, name string) (image.Descriptor, error) {
	r, err := images.NewImagesClient(c.conn).Get(c.in(ctx), &images.GetImageRequest{Name: name})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return image.Descriptor{}, fmt.Errorf("containerd has no image %s in its namespace %s: pull it (ctr -n %s image pull), or name another --namespace",
			name, c.namespace, c.namespace)
	}
	if err != nil {
		return image.Descriptor{}, fmt.Errorf("containerd at %s: %w", c.address, err)
	}
	d := r.GetImage().GetTarget()
	return image.Descriptor{MediaType: d.GetMediaType(), Digest: d.GetDigest(), Size: d.GetSize()}, nil
}

// Open reads a blob of containerd's content store.
func (c *containerd) Open(ctx context.Context, d image.Descriptor) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(c.in(ctx))
	stream, err := content.NewContentClient(c.conn).Read(ctx, &content.ReadContentRequest{Digest: d.Digest})
	if err != nil {
		cancel()
		return nil, errgrpc.ToNative(err)
	}
	return &contentReader{stream: stream, cancel: cancel}, nil
}

// contentReader reads the content of a blob from the stream of containerd's answers.
type contentReader struct {
	stream content.Content_ReadClient
	cancel context.CancelFunc
	rest   []byte // of the last message
}

func (r *contentReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, errgrpc.ToNative(err)
		}
		r.rest = m.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the stream. It may be called before the end was read.
func (r *contentReader) Close() error {
	r.cancel()
	return nil
}
