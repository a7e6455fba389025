package rpcs

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// Question is one cell of the table.
type Question struct {
	Call  string // an RPC
	State string // the state of its subject
	Exec  bool   `json:",omitempty"` // the subject is an exec
}

func (q Question) String() string {
	if q.Exec {
		return q.Call + " of an exec that is " + q.State
	}
	return q.Call + " of a task that is " + q.State
}

// Answer is the code of the answer, and the state that follows if the call
// succeeded.
type Answer struct {
	Code string
	Then string `json:",omitempty"`
	// Text is the text of the error. It is not compared.
	Text string `json:",omitempty"`
}

func (a Answer) String() string {
	if a.Then == "" {
		return a.Code
	}
	return a.Code + " → " + a.Then
}

// Same reports whether clients see no difference.
func (a Answer) Same(b Answer) bool { return a.Code == b.Code && a.Then == b.Then }

// Answers are the answers of one shim.
type Answers map[Question]Answer

// Questions returns all questions, in the order of the tables.
func Questions() []Question {
	var all []Question
	for _, c := range calls() {
		for _, s := range states() {
			if c.asks(s) {
				all = append(all, Question{c.name, s.name, s.exec})
			}
		}
	}
	return all
}

// Calls returns the names of the calls, in the order of the tables.
func Calls() []string {
	var names []string
	for _, c := range calls() {
		names = append(names, c.name)
	}
	return names
}

// line is a question and its answer, in a file.
type line struct {
	Question
	Answer
}

// MarshalJSON lists the answers in the order of the tables.
func (a Answers) MarshalJSON() ([]byte, error) {
	var lines []line
	for _, q := range Questions() {
		if answer, ok := a[q]; ok {
			lines = append(lines, line{q, answer})
		}
	}
	return json.Marshal(lines)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Answers) UnmarshalJSON(b []byte) error {
	var lines []line
	if err := json.Unmarshal(b, &lines); err != nil {
		return err
	}
	*a = Answers{}
	for _, l := range lines {
		(*a)[l.Question] = l.Answer
	}
	return nil
}

//go:embed runc.json
var runc []byte

// OfRunc returns the answers of runc's shim that the last `make test-client` has written.
func OfRunc() (Answers, error) {
	var a Answers
	if err := json.Unmarshal(runc, &a); err != nil {
		return nil, fmt.Errorf("answers of runc's shim: %w", err)
	}
	return a, nil
}
