package conformance

import "fmt"

// Level says how much of the ABI a stage1 implements. Each level includes the lower ones.
type Level int

// The levels.
const (
	LevelRun    Level = 1 + iota // apps run, end and are deleted
	LevelExec                    // further processes, and terminals
	LevelLimits                  // pause, update, statistics, OOM
	LevelUser                    // user namespaces, checkpoint and restore
)

// Levels is the number of levels.
const Levels = int(LevelUser)

var levelNames = [...]string{"nothing", "run and delete", "exec and terminal", "pause, update, statistics, OOM", "user namespaces, checkpoint"}

func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level %d", int(l))
	}
	return levelNames[l]
}
