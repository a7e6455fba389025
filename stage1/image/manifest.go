package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/appc/spec/schema"
	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

// maxManifest is the largest size of a manifest and of a features document, in bytes.
const maxManifest = 1 << 20

// manifest has the parts of an image's manifest that stage 0 uses.
type manifest struct {
	name     string
	version  int                       // of the interface
	paths    map[abi.Entrypoint]string // inside rootfs, absolute there
	features string                    // as paths; empty if there is none
	socket   string                    // as paths; empty if there is none
	own      []abi.Own
	skipped  []abi.Entrypoint
	noStage2 bool                             // it does without Stage2
	limits   map[abi.Entrypoint]time.Duration // deadlines
	unknown  []string                         // annotations, without AnnotationPrefix
}

// parseManifest parses a manifest that appc's library accepts. file is its name in errors.
func parseManifest(text []byte, file string) (*manifest, error) {
	if _, err := UnmarshalManifest(text); err != nil {
		return nil, invalid("%s%s: not an appc ImageManifest as docs/stage1-abi.md describes it: %v", file, position(text, err), err)
	}
	return parseVerified(text, file)
}

// parseVerified is parseManifest for a manifest that was parsed before, when its tree was
// rendered. A server reads it without appc's library, whose tables would stay in its memory.
func parseVerified(text []byte, file string) (*manifest, error) {
	var im struct {
		Name        string `json:"name"`
		Annotations []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"annotations"`
	}
	if err := plainjson.Decode(text, &im); err != nil {
		return nil, invalid("%s%s: %v", file, position(text, err), err)
	}
	annotations := map[string]string{}
	for _, a := range im.Annotations {
		annotations[a.Name] = a.Value
	}
	version, err := interfaceVersion(annotations)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	m := &manifest{name: im.Name, version: version, paths: map[abi.Entrypoint]string{}, unknown: unknownNames(annotations, version)}
	for _, e := range abi.Entrypoints() {
		if p, ok := annotations[abi.AnnotationPrefix+string(e)]; ok {
			if err := checkPath(p); err != nil {
				return nil, invalid("%s: annotation %s%s: %v", file, abi.AnnotationPrefix, e, err)
			}
			m.paths[e] = p
		}
	}
	if p, ok := annotations[abi.AnnotationFeatures]; ok {
		if err := checkPath(p); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationFeatures, err)
		}
		m.features = p
	}
	if p, ok := annotations[abi.AnnotationServe]; ok && version == abi.Version {
		if err := checkSocket(p); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationServe, err)
		}
		m.socket = p
	}
	if version == abi.Version {
		if m.own, err = parseOwn(annotations[abi.AnnotationOwn], m.paths); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationOwn, err)
		}
		if m.skipped, err = parseSkip(annotations[abi.AnnotationSkip], m.paths); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationSkip, err)
		}
		if m.noStage2, err = parseWithout(annotations[abi.AnnotationWithout], m.paths); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationWithout, err)
		}
		if m.limits, err = parseDeadlines(annotations[abi.AnnotationDeadlines]); err != nil {
			return nil, invalid("%s: annotation %s: %v", file, abi.AnnotationDeadlines, err)
		}
	}
	if m.paths[abi.Run] == "" {
		return nil, invalid("%s: declares no entrypoint run: add the annotation %s%s with the path of an executable in rootfs",
			file, abi.AnnotationPrefix, abi.Run)
	}
	return m, nil
}

// UnmarshalManifest unmarshals an appc ImageManifest, of a stage1 or of an app. appc's library
// panics if an isolator has no value.
func UnmarshalManifest(text []byte) (im *schema.ImageManifest, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("an isolator has no value")
		}
	}()
	im = &schema.ImageManifest{}
	return im, json.Unmarshal(text, im)
}

// isWhole returns an error if an image that is not an ACI has dependencies or a
// pathWhitelist. file is the name of its manifest in errors.
func isWhole(dir, file string) error {
	text, err := readManifest(filepath.Join(dir, "manifest"))
	if err != nil {
		return nil // verify returns the error
	}
	im, err := UnmarshalManifest(text)
	if err == nil && (len(im.Dependencies) > 0 || len(im.PathWhitelist) > 0) {
		return invalid("%s: dependencies and pathWhitelist are for ACIs: pack it as one, or build the image whole", file)
	}
	return nil
}

// invalid returns an error that unwraps to errdefs.ErrInvalidArgument.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}

// prefix puts words before an error, if there is one. Callers defer it.
func prefix(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// position returns the place of an error in a JSON text, as ":line:column".
func position(text []byte, err error) string {
	offset := int64(-1)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	if offset < 1 || offset > int64(len(text)) {
		return ""
	}
	before := text[:offset-1]
	line := 1 + bytes.Count(before, []byte("\n"))
	return fmt.Sprintf(":%d:%d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

// interfaceVersion returns the version of an image's entrypoints. An image without that
// annotation is of version 1.
func interfaceVersion(annotations map[string]string) (int, error) {
	v, ok := annotations[abi.AnnotationVersion]
	if !ok {
		return 1, nil
	}
	n, err := strconv.Atoi(v)
	switch {
	case err != nil:
		return 0, invalid("annotation %s is %q and has to be a number", abi.AnnotationVersion, v)
	case n < 1 || n > abi.Version:
		return 0, fmt.Errorf("the image is of interface version %d; stage 0 speaks versions 1 to %d: %w", n, abi.Version, errdefs.ErrNotImplemented)
	}
	return n, nil
}

func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "/" || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%q is not a clean absolute path inside rootfs, such as \"/bin/run\"", p)
	}
	return nil
}

// checkSocket refuses the path of a socket at a place where the stage1 may not make one.
func checkSocket(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	for _, taken := range []string{"/rkt/status", "/rkt/env", "/rkt/iottymux"} {
		if p == taken || strings.HasPrefix(p, taken+"/") {
			return fmt.Errorf("%q is below %s, which belongs to the ABI", p, taken)
		}
	}
	if !strings.HasPrefix(p, "/rkt/") {
		return fmt.Errorf("%q is not below /rkt, the directory that a stage1 can write to", p)
	}
	return nil
}

// checkFiles returns an error if the image lacks a file that the manifest declares, or if
// the features document has misspelt fields. source is the name of the image in errors.
func (m *manifest) checkFiles(dir, source string) error {
	root, err := os.OpenRoot(filepath.Join(dir, "rootfs"))
	if err != nil {
		return invalid("%s has no directory rootfs: %v", source, err)
	}
	defer root.Close()
	for _, e := range slices.Sorted(maps.Keys(m.paths)) {
		if err := checkExecutable(root, m.paths[e]); err != nil {
			return invalid("entrypoint %s: %s: %v", e, filepath.Join(source, "rootfs", m.paths[e]), err)
		}
		if err := m.checkReadOnly(filepath.Join(dir, "rootfs"), m.paths[e]); err != nil {
			return invalid("entrypoint %s: %s: %v", e, filepath.Join(source, "rootfs", m.paths[e]), err)
		}
	}
	if m.features == "" {
		return nil
	}
	f, err := readFeatures(dir, m.features)
	if err == nil {
		err = m.checkFields(f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(source, "rootfs", m.features), err)
	}
	return nil
}

// checkReadOnly refuses a program, or a link to one, below a directory on which stage 0 mounts one of the pod's own. In a
// pod the program would not be there, and what is there can be written. For images of rkt's versions the whole tree
// is mounted once more, without these directories.
func (m *manifest) checkReadOnly(rootfs, p string) error {
	if m.version < abi.Version {
		return nil
	}
	top, err := filepath.EvalSymlinks(rootfs)
	if err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(filepath.Join(rootfs, p))
	if err != nil {
		return err
	}
	own := []string{"rkt"}
	if !m.noStage2 {
		own = append(own, Stage2)
	}
	for _, d := range own {
		if strings.HasPrefix(file, filepath.Join(top, d)+"/") {
			return fmt.Errorf("it is below /%s, on which stage 0 mounts a directory of the pod: put it at another place", d)
		}
	}
	return nil
}

func checkExecutable(root *os.Root, p string) error {
	st, err := root.Stat(strings.TrimPrefix(p, "/"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file: add it, or take the annotation out of the manifest")
	case err != nil: // such as a symbolic link that leads out of the image
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fmt.Errorf("cannot be reached inside rootfs: %w", err)
	case !st.Mode().IsRegular():
		return errors.New("is not a regular file")
	case st.Mode()&0o111 == 0:
		return errors.New("is not executable: chmod +x it")
	}
	return nil
}

// features is the document that the features annotation names.
type features struct {
	OCI    json.RawMessage `json:"oci"`
	Fields []string        `json:"fields"`
	Files  []string        `json:"files"` // in an answer of features/probe: the files on which it depends
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
	text, err := readLimited(file, maxManifest)
	if err != nil {
		return f, err
	}
	return parseFeatures(text)
}

// parseFeatures parses a features document.
func parseFeatures(text []byte) (f features, err error) {
	if err := plainjson.Decode(text, &f); err != nil {
		return f, invalid("features document%s: %v", position(text, err), err)
	}
	for _, p := range f.Fields {
		if !strings.HasPrefix(p, "/") || p == "/" || strings.HasSuffix(p, "/") {
			return f, invalid("features document: field %q is not a JSON pointer into config.json, such as \"/process/args\"", p)
		}
	}
	return f, nil
}
