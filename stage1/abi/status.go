package abi

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// StatusDir is where exits are recorded, relative to the pod directory.
const StatusDir = "stage1/rootfs/rkt/status"

// StatusPath returns the status file of an app, or of one of its execs, inside
// the directory StatusDir of a pod.
func StatusPath(dir, app, exec string) string {
	if exec == "" {
		return filepath.Join(dir, app)
	}
	return filepath.Join(dir, app+".exec", exec)
}

// Status is how a process ended, as rkt/status/APP keeps it. The first line of
// the file is the exit status as a shell would show it; it alone is required.
//
//	137
//	signal=9
//	time=1732159865.123456789
type Status struct {
	Code   int       // 0 to 255; 128 + Signal when a signal ended it
	Signal int       // 0 when it exited by itself
	Time   time.Time // when it was reaped
}

// Format renders the status file.
func (s Status) Format() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", s.Code)
	if s.Signal != 0 {
		fmt.Fprintf(&b, "signal=%d\n", s.Signal)
	}
	fmt.Fprintf(&b, "time=%d.%09d\n", s.Time.Unix(), s.Time.Nanosecond())
	return b.Bytes()
}

// ErrStatus says that a status file does not hold a status.
var ErrStatus = errors.New("not an exit status")

// ParseStatus reads a status file. A file without a time gets mtime, which is
// what a stage1 written in shell leaves behind.
func ParseStatus(b []byte, mtime time.Time) (Status, error) {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	code, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || code < 0 || code > 255 {
		return Status{}, fmt.Errorf("%w: first line %.40q is not a number from 0 to 255", ErrStatus, lines[0])
	}
	s := Status{Code: code, Time: mtime}
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case "signal":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 64 {
				return Status{}, fmt.Errorf("%w: signal %.40q is not a number from 1 to 64", ErrStatus, value)
			}
			s.Signal, s.Code = n, 128+n
		case "time":
			t, err := parseTime(value)
			if err != nil {
				return Status{}, fmt.Errorf("%w: time %.40q is not SECONDS.NANOSECONDS", ErrStatus, value)
			}
			s.Time = t
		}
	}
	return s, nil
}

func parseTime(v string) (time.Time, error) {
	sec, frac, _ := strings.Cut(v, ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	if len(frac) > 9 {
		frac = frac[:9]
	}
	n, err := strconv.ParseUint((frac + "000000000")[:9], 10, 32)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(s, int64(n)), nil
}

// ReadStatus reads the status of an app or exec from the directory StatusDir of
// a pod. The error is fs.ErrNotExist while the process lives.
func ReadStatus(dir, app, exec string) (Status, error) {
	path := StatusPath(dir, app, exec)
	b, err := os.ReadFile(path)
	if err != nil {
		return Status{}, err
	}
	mtime := time.Now()
	if st, err := os.Stat(path); err == nil {
		mtime = st.ModTime()
	}
	s, err := ParseStatus(b, mtime)
	if err != nil {
		return Status{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// WriteStatus records an exit by rename, so that a reader sees all of it or
// nothing.
func WriteStatus(dir, app, exec string, s Status) error {
	path := StatusPath(dir, app, exec)
	if exec != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
	tmp := filepath.Join(filepath.Dir(path), ".tmp-"+filepath.Base(path))
	if err := os.WriteFile(tmp, s.Format(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
