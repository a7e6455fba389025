package stage1

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

// readFeatures reads the features document of an image, whose path in rootfs is
// given.
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

// fields is a set of JSON pointers as a tree. A nil one is empty.
type fields struct {
	covered bool // the value here and all below it
	next    map[string]*fields
	any     *fields // what a pointer has as *
}

// newFields makes the set of all pointers in some lists.
func newFields(lists ...[]string) *fields {
	root := &fields{}
	for _, list := range lists {
		for _, pointer := range list {
			f := root
			for _, word := range strings.Split(pointer[1:], "/") {
				f = f.child(word)
			}
			f.covered = true
		}
	}
	return root
}

// child returns the node of a word of a pointer, and makes it first.
func (f *fields) child(word string) *fields {
	if word == "*" {
		if f.any == nil {
			f.any = &fields{}
		}
		return f.any
	}
	if f.next == nil {
		f.next = map[string]*fields{}
	}
	key := strings.ReplaceAll(strings.ReplaceAll(word, "~1", "/"), "~0", "~")
	if f.next[key] == nil {
		f.next[key] = &fields{}
	}
	return f.next[key]
}
