package image

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/errdefs"
)

// features is the document that the features annotation names.
type features struct {
	OCI    json.RawMessage `json:"oci"`
	Fields []string        `json:"fields"`
}

// readFeatures reads the features document of an image. path is its path in rootfs.
func readFeatures(dir, path string) (features, error) {
	var f features
	root, err := os.OpenRoot(dir)
	if err != nil {
		return f, err
	}
	defer root.Close()
	file, err := root.Open("rootfs" + path)
	if err != nil {
		return f, fmt.Errorf("features document: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxManifest))
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, invalid("features document%s: %v", position(text, err), err)
	}
	for _, p := range f.Fields {
		if !strings.HasPrefix(p, "/") || p == "/" || strings.HasSuffix(p, "/") {
			return f, invalid("features document: field %q is not a JSON pointer into config.json, such as \"/process/args\"", p)
		}
	}
	return f, nil
}
