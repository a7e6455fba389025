package rpcs

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRuncsAnswersAreThereForEveryQuestion(t *testing.T) {
	answers, err := OfRunc()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range Compare(answers, answers) {
		t.Error(problem)
	}
	if len(answers) != len(Questions()) {
		t.Errorf("%d answers to %d questions", len(answers), len(Questions()))
	}
}

func TestADifferenceWithoutAReasonIsAProblem(t *testing.T) {
	runc, err := OfRunc()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		question Question
		answer   Answer
		problem  string // empty: no problem
	}{
		{Question{Call: "State", State: "running"}, Answer{Code: "OK", Then: "CREATED"}, "State of a task that is running: OK → CREATED"},
		{Question{Call: "Wait", State: "running"}, Answer{Code: "OK", Then: "RUNNING"}, "Wait of a task that is running"},
		{Question{Call: "Start", State: "running"}, Answer{Code: "OK", Then: "RUNNING"}, "Start of a task that is running"},
		{Question{Call: "Start", State: "running"}, Answer{Code: "FailedPrecondition"}, ""},
		{Question{Call: "Pids", State: "stopped"}, Answer{Code: "NotFound"}, "Pids of a task that is stopped"},
	} {
		ours := Answers{}
		for q, a := range runc {
			ours[q] = a
		}
		ours[c.question] = c.answer
		got := strings.Join(Compare(runc, ours), "\n")
		if c.problem == "" && got != "" || !strings.HasPrefix(got, c.problem) {
			t.Errorf("%s answered with %s: %q, want %q", c.question, c.answer, got, c.problem)
		}
	}
}

func TestAnswersAreTheSameAfterAFile(t *testing.T) {
	want, err := OfRunc()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Answers
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for q, a := range want {
		if got[q] != a {
			t.Errorf("%s: %v, want %v", q, got[q], a)
		}
	}
}
