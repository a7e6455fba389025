package rpcs

import "slices"

// named are the codes that tell a client the cause of an error. The code Unknown does not.
var named = []string{"AlreadyExists", "FailedPrecondition", "NotFound"}

// Reason returns the reason why a question is answered differently from runc's shim. It is
// empty if the answers are the same, or should be.
func (q Question) Reason(runc, rkt Answer) string {
	switch {
	case runc.Same(rkt):
		return ""
	case runc.Code == "Unknown" && slices.Contains(named, rkt.Code):
		return "the code says what runc's shim says by the text only"
	case q.Exec && q.State == "stopped, task paused" && rkt == (Answer{Code: "OK", Then: "STOPPED"}):
		return "what has ended is not paused"
	case q == Question{Call: "Kill of all", State: "stopped"} && rkt.Code == "NotFound":
		return "as any other signal to a task that has ended"
	case q == Question{Call: "Pids", State: "stopped"} && rkt.Code == "FailedPrecondition":
		return "a containerd that starts again takes a task without processes for one that was never created, and its exit code is lost"
	case q.Exec && q.Call == "ResizePty" && rkt.Code == "OK":
		return "a terminal that is no more is not the client's mistake: a resize and an exit cross each other"
	}
	return ""
}
