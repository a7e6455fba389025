package hostile

import (
	_ "embed"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// recordFile has runc's verdicts for the short form, in which runc is not attacked.
const recordFile = "testdata/runc.json"

//go:embed testdata/runc.json
var recordText []byte

// record has the verdicts in containers of runc's.
type record struct {
	// Modes are the situations, in the order of the letters below.
	Modes []string `json:"modes"`
	// Ways has for each way out two words, for a first process and for an exec, with a letter for each mode: o if the way is
	// open, c if it is closed, and - if it was not tried.
	Ways map[string]string `json:"ways"`
}

// runcStages are the stages of a container of runc's, in the order of a record's words.
var runcStages = []string{firstProcess, execStage}

// recordOf makes a record of results.
func recordOf(all []*result) *record {
	r := &record{Ways: map[string]string{}}
	verdicts := map[string]map[string]string{} // by mode, and by stage and way
	for _, one := range all {
		if one.Column != currentRunc || one.Holes == nil {
			continue
		}
		r.Modes = append(r.Modes, one.Mode)
		verdicts[one.Mode] = one.Holes
		for name := range one.Holes {
			_, way, _ := strings.Cut(name, ": ")
			r.Ways[way] = ""
		}
	}
	for way := range r.Ways {
		var words []string
		for _, stage := range runcStages {
			word := ""
			for _, mode := range r.Modes {
				word += letter(verdicts[mode][stage+": "+way])
			}
			words = append(words, word)
		}
		r.Ways[way] = strings.Join(words, " ")
	}
	return r
}

func letter(verdict string) string {
	switch verdict {
	case "":
		return "-"
	case loot.Open:
		return "o"
	default:
		return "c"
	}
}

// verdict says whether a way is open to a container of runc's, and whether that is known.
func (r *record) verdict(mode, name string) (isOpen, known bool) {
	stage, way, _ := strings.Cut(name, ": ")
	if stage == debugStage { // runc has none: a debug app has the rights of an exec
		stage = execStage
	}
	words := strings.Fields(r.Ways[way])
	at, m := slices.Index(runcStages, stage), slices.Index(r.Modes, mode)
	if at < 0 || at >= len(words) || m < 0 || m >= len(words[at]) {
		return false, false
	}
	return words[at][m] == 'o', true
}

// dependsOnKernel reports whether a way exists on some kernels only, so that the record may lack it.
func dependsOnKernel(name string) bool {
	return slices.ContainsFunc([]string{"a file system of the type", "the hierarchy ", "device "}, func(s string) bool { return strings.Contains(name, s) })
}

// oracleRecord returns runc's verdicts: those of this run if it attacks runc, too.
func oracleRecord() (*record, error) {
	if comparing && slices.ContainsFunc(columns, func(c *column) bool { return c.role == oracle }) {
		found.mu.Lock()
		defer found.mu.Unlock()
		return recordOf(found.all), nil
	}
	r := &record{}
	return r, json.Unmarshal(recordText, r)
}

// compareWithRunc compares the verdicts with those on runc.
func (l *lab) compareWithRunc() {
	l.t.Helper()
	if l.role == oracle {
		return
	}
	runc, err := oracleRecord()
	if err != nil {
		l.t.Fatal(err)
	}
	r := l.result
	for _, name := range slices.Sorted(maps.Keys(r.Holes)) {
		if r.Holes[name] != loot.Open {
			continue
		}
		isOpen, known := runc.verdict(r.Mode, name)
		switch {
		case isOpen:
		case !known && dependsOnKernel(name):
			l.t.Logf("runc's verdict is not known: %s", name)
		default:
			r.Wins++
			r.Loot = append(r.Loot, name)
			if l.role == ours {
				l.t.Errorf("open here, and closed in runc: %s", name)
			}
		}
	}
	if len(r.Holes) == 0 && !l.t.Failed() {
		l.t.Error("nothing was tried")
	}
	if l.role == proof && r.Wins == 0 {
		l.t.Errorf("nothing is open in %s that is closed in runc: the attack is not real", l.name)
	}
}

// writeRecord writes runc's verdicts for the short form, if all modes were tried.
func writeRecord(all []*result) error {
	r := recordOf(all)
	for _, s := range situations() {
		if !slices.Contains(r.Modes, s.name) {
			return nil
		}
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(recordFile, append(b, '\n'), 0o644)
}
