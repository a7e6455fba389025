package abi

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var noon = time.Unix(1732190400, 0)

func TestANoticeIsReadAsItWasWritten(t *testing.T) {
	long := strings.Repeat("a", 200)
	for _, want := range []Notice{
		{App: "web"},
		{App: "web", Exec: "probe.1"},
		{App: "web", Status: &Status{Code: 42, Time: time.Unix(1732159865, 123456789)}},
		{App: "web", Exec: "code", Status: &Status{Code: 0, Time: time.Unix(1, 1)}},
		{App: long, Exec: strings.Repeat("b", 255), Status: &Status{Code: 192, Signal: 64, Time: time.Unix(maxTime-1, 999999999)}},
	} {
		line := string(want.Format())
		const pipeBuf = 4096
		if strings.Count(line, "\n") != 1 || len(line) > pipeBuf {
			t.Errorf("%+v is no line that one write passes on whole: %q", want, line)
		}
		got, err := ParseNotice(strings.TrimSuffix(line, "\n"), noon)
		if err != nil || got.App != want.App || got.Exec != want.Exec || (got.Status == nil) != (want.Status == nil) {
			t.Errorf("wrote %+v, read %+v, %v", want, got, err)
			continue
		}
		if want.Status != nil && (got.Status.Code != want.Status.Code || got.Status.Signal != want.Status.Signal || !got.Status.Time.Equal(want.Status.Time)) {
			t.Errorf("wrote %+v, read %+v", *want.Status, *got.Status)
		}
	}
}

func TestWhatANoticeSaysInItsWords(t *testing.T) {
	for line, want := range map[string]Status{
		"exit web code=7":                          {Code: 7, Time: noon},
		"exit web  code=7\ttime=5.5 ":              {Code: 7, Time: time.Unix(5, 500000000)},
		"exit web time=5 code=255":                 {Code: 255, Time: time.Unix(5, 0)},
		"exit web signal=9 code=0":                 {Code: 137, Signal: 9, Time: noon},
		"exit web code=0 signal=15 core=yes":       {Code: 143, Signal: 15, Time: noon},
		"exit web probe code=1 a=b=c time=3.12345": {Code: 1, Time: time.Unix(3, 123450000)},
	} {
		n, err := ParseNotice(line, noon)
		if err != nil || n.Status == nil || n.Status.Code != want.Code || n.Status.Signal != want.Signal || !n.Status.Time.Equal(want.Time) {
			t.Errorf("%q: %+v, %v; want %+v", line, n.Status, err, want)
		}
	}
}

func TestWhatIsNoNoticeIsRefused(t *testing.T) {
	for _, line := range []string{"", "exit", "exited web", "exit web a b", "exit code=1", "exit web a code=1 b", "exit web code=1 a"} {
		if n, err := ParseNotice(line, noon); !errors.Is(err, ErrNotice) || n.App != "" {
			t.Errorf("%q was read as %+v, %v", line, n, err)
		}
	}
}

// After words that cannot be parsed, the bare notice is used, because there is a record.
func TestANoticeWithBadWordsStillNamesItsProcess(t *testing.T) {
	for _, words := range []string{
		"code=256", "code=-1", "code=", "code=99999999999999999999", "code=1 code=x", "signal=9", "time=1",
		"code=1 signal=0", "code=1 signal=65", "code=1 time=now", "code=1 time=-1", "code=1 time=253402300800", "color=red",
	} {
		n, err := ParseNotice("exit web probe "+words, noon)
		if !errors.Is(err, ErrStatus) || n.App != "web" || n.Exec != "probe" || n.Status != nil {
			t.Errorf("%q was read as %+v, %v", words, n, err)
		}
	}
}

func FuzzParseNotice(f *testing.F) {
	f.Add("exit web probe code=137 signal=9 time=1732159865.123456789")
	f.Add("exit web")
	f.Fuzz(func(t *testing.T, line string) {
		n, err := ParseNotice(line, noon)
		if err != nil {
			return
		}
		again, err := ParseNotice(strings.TrimSuffix(string(n.Format()), "\n"), noon)
		if err != nil || again.App != n.App || again.Exec != n.Exec || (again.Status == nil) != (n.Status == nil) {
			t.Fatalf("%q became %+v, then %+v, %v", line, n, again, err)
		}
		if s := n.Status; s != nil && (again.Status.Code != s.Code || again.Status.Signal != s.Signal || !again.Status.Time.Equal(s.Time)) {
			t.Errorf("%q became %+v, then %+v", line, *s, *again.Status)
		}
	})
}
