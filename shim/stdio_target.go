package shim

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// targetKind is the kind of file or program that a stream is connected with.
type targetKind int

const (
	toNothing targetKind = iota
	toPath               // a fifo as a rule, or any other file that can be opened
	toFile               // file://: created if it is missing, and appended to
	toLogger             // binary:// and binary-v2://
)

// target is the destination of a stream, or the source of stdin.
type target struct {
	kind targetKind
	path string   // absolute
	args []string // of a logger
	// strict is set for binary-v2: the logger reports ready by writing a byte. End of file
	// alone, which a crash causes as well, is a failure.
	strict bool
	bound  bound // of a file
}

// parseTarget reads a path or URI of a request (docs/requirements.md, *Streams*).
func parseTarget(s string) (target, error) {
	if s == "" {
		return target{}, nil
	}
	if filepath.IsAbs(s) { // never parsed as a URI: a path may contain any character
		return target{kind: toPath, path: s}, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return target{}, fmt.Errorf("%v: %w", err, errdefs.ErrInvalidArgument)
	}
	t := target{path: u.Path}
	switch u.Scheme {
	case "fifo":
		t.kind = toPath
	case "file":
		t.kind = toFile
		if t.bound, err = parseBound(u.Query()); err != nil {
			return target{}, fmt.Errorf("query of %q: %w", s, err)
		}
	case "binary", "binary-v2":
		t.kind = toLogger
		t.strict = u.Scheme == "binary-v2"
		if t.args, err = loggerArgs(u.RawQuery); err != nil {
			return target{}, fmt.Errorf("query of %q: %v: %w", s, err, errdefs.ErrInvalidArgument)
		}
	default:
		return target{}, fmt.Errorf("streams of the kind %q are not supported (%q): %w", u.Scheme, s, errdefs.ErrInvalidArgument)
	}
	if !filepath.IsAbs(t.path) {
		return target{}, fmt.Errorf("%q does not name an absolute path: %w", s, errdefs.ErrInvalidArgument)
	}
	return t, nil
}

// loggerArgs returns the keys and values of a query, in order. A key without a
// value gives an empty argument, because loggers expect pairs.
func loggerArgs(query string) ([]string, error) {
	var args []string
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(k)
		if err != nil {
			return nil, err
		}
		value, err := url.QueryUnescape(v)
		if err != nil {
			return nil, err
		}
		args = append(args, key, value)
	}
	return args, nil
}
