package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// Limits of a report, in bytes before it is compressed.
const (
	reportFile = 256 << 10
	reportSize = 16 << 20
)

// archive collects the files of a report.
type archive struct {
	secrets disk.Secrets // of all pods; complete when the archive is written
	files   []archived
}

// archived is a file of a report: a value, which becomes JSON, or a text.
type archived struct {
	name  string
	value any
	text  string
}

// archiveContents lists what a report has.
type archiveContents struct {
	Path  string            `json:"path"`
	Files []archivedContent `json:"files"`
}

// archivedContent is one of the files.
type archivedContent struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Note  string `json:"note,omitempty"` // if it was cut, or left out
}

// add adds a value, or the error in its place.
func (a *archive) add(name string, value any, err error) {
	if err != nil {
		value = map[string]string{"error": err.Error()}
	}
	a.files = append(a.files, archived{name: name, value: value})
}

func (a *archive) text(name, text string) {
	a.files = append(a.files, archived{name: name, text: text})
}

// write writes the archive to a new file that only its owner may read.
func (a *archive) write(path string) (_ *archiveContents, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	zipped := gzip.NewWriter(f)
	w := tar.NewWriter(zipped)
	c := &archiveContents{Path: path}
	total := 0
	for _, file := range a.files {
		text, err := a.redacted(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.name, err)
		}
		content := archivedContent{Name: file.name}
		if len(text) > reportFile {
			text, content.Note = text[len(text)-reportFile:], "cut to its end"
		}
		if total += len(text); total > reportSize {
			text, content.Note = nil, "left out: the report is too large"
		}
		content.Bytes = len(text)
		c.Files = append(c.Files, content)
		h := &tar.Header{Name: "rkt-report/" + file.name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now(), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
	}
	return c, errors.Join(w.Close(), zipped.Close())
}

// redacted returns a file's text without secrets. Of a value it redacts each string by itself,
// so that no text of a container can end a string of the document.
func (a *archive) redacted(f archived) ([]byte, error) {
	if f.value == nil && f.text != "" {
		return []byte(a.secrets.Redact(f.text)), nil
	}
	text, err := json.Marshal(f.value)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return jsonOf(a.clean(v))
}

// clean returns a decoded value whose strings are redacted and can be printed.
func (a *archive) clean(v any) any {
	switch v := v.(type) {
	case string:
		return a.secrets.Redact(abi.Printable(v))
	case []any:
		for i := range v {
			v[i] = a.clean(v[i])
		}
	case map[string]any:
		for key, value := range v {
			v[key] = a.clean(value)
		}
	}
	return v
}

// osRelease returns the id and the version in the text of /etc/os-release.
func osRelease(text string) string {
	values := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, "=")
		values[name] = strings.Trim(value, `"'`)
	}
	return strings.TrimSpace(values["ID"] + " " + values["VERSION_ID"])
}
