package pod

import "testing"

// An exec may be what ends the other processes.
func TestAnExecIsMadeInAnAppAtItsLimitOfProcesses(t *testing.T) {
	needPids(t)
	w := newWorld(t)
	w.resources = `,"resources":{"pids":{"limit":3}}`
	path, next := scriptLines(t)
	w.mustCreate("a", "sleep 60 & sleep 60 & echo full > "+path+"; wait")
	w.mustStart("a", "")
	next()
	w.mustAddExec("a", "e", "exit 6")
	w.mustStart("a", "e")
	w.end("a")
}
