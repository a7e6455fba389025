package abi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Notice is one line that a stage1 writes to RKT_NOTIFY_FD: a process has ended, or, with
// OwnResources, a process of an app was killed for want of memory.
//
//	exit APP
//	exit APP EXEC
//	exit APP EXEC code=137 signal=9 time=1732159865.123456789
//	oom APP
//
// The words with "=" say how the process ended, and mean the same as in the record of the
// exit. A stage1 writes them only if Request.NoticeWords of `run` is set, because a stage 0
// that does not set it drops a notice with such words.
type Notice struct {
	OOM    bool // the line is "oom APP"
	App    string
	Exec   string  // empty for the app's first process
	Status *Status // nil if the notice does not say how it ended
}

// ErrNotice is the error for a line that is not a notice.
var ErrNotice = errors.New(`not "exit APP [EXEC] [code=N signal=N time=T]" or "oom APP"`)

// Format renders the line. It is shorter than PIPE_BUF, so that one write(2) of it is
// atomic.
func (n Notice) Format() []byte {
	if n.OOM {
		return []byte("oom " + n.App + "\n")
	}
	line := "exit " + n.App
	if n.Exec != "" {
		line += " " + n.Exec
	}
	if s := n.Status; s != nil {
		line += fmt.Sprintf(" code=%d", s.Code)
		if s.Signal != 0 {
			line += fmt.Sprintf(" signal=%d", s.Signal)
		}
		line += " time=" + formatTime(s.Time)
	}
	return []byte(line + "\n")
}

// ParseNotice parses a line. If the line has words and no time, it uses now. After an error
// that unwraps to ErrNotice the Notice is empty. After an error that unwraps to ErrStatus it
// has App and Exec, and the caller has to read the record for the status.
func ParseNotice(line string, now time.Time) (Notice, error) {
	words := strings.Fields(line)
	if len(words) == 2 && words[0] == "oom" && !strings.Contains(words[1], "=") {
		return Notice{OOM: true, App: words[1]}, nil
	}
	if len(words) < 2 || words[0] != "exit" || strings.Contains(words[1], "=") {
		return Notice{}, fmt.Errorf("notice %.80q: %w", line, ErrNotice)
	}
	n := Notice{App: words[1]}
	words = words[2:]
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		n.Exec, words = words[0], words[1:]
	}
	status, coded := Status{Time: now}, false
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return Notice{}, fmt.Errorf("notice %.80q: %w", line, ErrNotice)
		}
		if err := status.set(key, value); err != nil {
			return n, fmt.Errorf("notice %.80q: %w", line, err)
		}
		coded = coded || key == "code"
	}
	switch {
	case coded:
		n.Status = &status
	case len(words) > 0:
		return n, fmt.Errorf("notice %.80q: %w: it has no code", line, ErrStatus)
	}
	return n, nil
}

// set sets the field of a word that says how a process ended. It ignores unknown words. A
// signal also sets the code.
func (s *Status) set(key, value string) error {
	switch key {
	case "code":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > 255 {
			return fmt.Errorf("%w: code %.40q is not a number from 0 to 255", ErrStatus, value)
		}
		s.Code = n
	case "signal":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 64 {
			return fmt.Errorf("%w: signal %.40q is not a number from 1 to 64", ErrStatus, value)
		}
		s.Signal = n
	case "time":
		t, err := parseTime(value)
		if err != nil {
			return fmt.Errorf("%w: time %.40q is not SECONDS.NANOSECONDS", ErrStatus, value)
		}
		s.Time = t
	}
	if s.Signal != 0 {
		s.Code = 128 + s.Signal
	}
	return nil
}
