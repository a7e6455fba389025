package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// imagesBound is the time within which CRI must know images that were imported.
const imagesBound = 30 * time.Second

// Pause returns the pause image. program is the path of the program of cri/pause.
func Pause(program string) (image.Image, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return image.Image{}, err
	}
	pause := image.Image{Name: PauseImage, Layers: [][]image.File{{{Name: "pause", Mode: 0o755, Content: text}}}}
	pause.Config.Entrypoint = []string{"/pause"}
	return pause, nil
}

// AwaitImages returns when the CRI at a socket knows the images of these names. After ctr
// has imported an image and has ended, an event informs CRI of the image. Before that, CRI
// would try to pull the image.
func AwaitImages(ctx context.Context, socket string, names ...string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, imagesBound)
	defer cancel()
	images := runtimeapi.NewImageServiceClient(conn)
	for _, name := range names {
		for {
			st, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
			if err != nil {
				return fmt.Errorf("image %s, which was imported: %w", name, err)
			}
			if st.GetImage() != nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("image %s, which was imported, is not known to CRI after %s", name, imagesBound)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}
