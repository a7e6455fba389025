package stage1

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Bounds of a pod's journal. Execs come without number, so the file is cut: it
// is renamed to journal.old when it is full, and a new one begun.
const (
	journalFile = "journal"
	journalOld  = "journal.old"
	journalSize = 256 << 10 // bytes
	journalArgs = 8         // arguments that are kept of a call
	journalText = 1024      // bytes that are kept of an error
)

// Entry is a line of a pod's journal: one call of an entrypoint.
type Entry struct {
	Time       time.Time      `json:"time"`
	Entrypoint abi.Entrypoint `json:"entrypoint"`
	Argv       []string       `json:"argv"`
	App        string         `json:"app,omitempty"`
	Exec       string         `json:"exec,omitempty"`
	Millis     float64        `json:"ms"`
	Code       int            `json:"code"`
	Error      string         `json:"error,omitempty"`
}

// journal puts the call on record. A journal that cannot be written costs a line
// in the log and no container.
func (k *call) journal(err error) {
	e := Entry{
		Time: k.began, Entrypoint: k.entrypoint, App: k.Request.App, Exec: k.Request.Exec,
		Argv: k.args, Millis: float64(time.Since(k.began).Microseconds()) / 1000,
	}
	if len(e.Argv) > journalArgs {
		e.Argv = e.Argv[:journalArgs]
	}
	if err != nil {
		e.Code, e.Error = 1, err.Error()
		if ee, ok := err.(*EntrypointError); ok {
			e.Code = ee.Code
		}
		e.Error = e.Error[:min(len(e.Error), journalText)]
	}
	if err := appendEntry(k.Dir, e); err != nil {
		log.L.WithError(err).Debug("journal of a pod")
	}
}

func appendEntry(dir string, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > journalSize {
		_ = os.Rename(filepath.Join(dir, journalFile), filepath.Join(dir, journalOld))
	}
	_, err = f.Write(append(line, '\n')) // one write: lines of concurrent calls stay whole
	return err
}
