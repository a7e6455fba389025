package stage1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestEveryCallIsInTheJournal(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.AppStart: `exit 0`, abi.AppStop: `echo "no such app" >&3; exit 5`, abi.AppSignal: `echo careful >&2`,
		abi.Enter: `fail 1 x`,
	})
	_ = p.Invoke(t.Context(), p.call(abi.AppStart))
	_ = p.Invoke(t.Context(), p.call(abi.AppStop))
	_ = p.Invoke(t.Context(), p.call(abi.AppSignal))
	c := p.call(abi.Enter)
	c.Request.Exec, c.Process = "e1", readProcess(`{"args":["sh","-c","`+strings.Repeat("ü", 500)+`"]}`)
	if _, err := p.Enter(t.Context(), c, [3]*os.File{}); err == nil {
		t.Fatal("no error")
	}
	entries, err := journal.Read(p.dir)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []journal.Entry{
		{Entrypoint: abi.AppStart}, {Entrypoint: abi.AppStop, Code: 5, Error: "no such app"},
		{Entrypoint: abi.AppSignal, Error: "careful"}, {Entrypoint: abi.Enter, Exec: "e1", Code: 1, Error: "x"},
	} {
		e := entries[i]
		if e.Entrypoint != want.Entrypoint || e.Code != want.Code || e.Error != want.Error || e.App != "app-1" || e.Exec != want.Exec {
			t.Errorf("%+v, want %+v", e, want)
		}
		if e.Millis <= 0 || e.PID == 0 || time.Since(e.Time) > time.Minute || e.State != "" || len(e.Argv) < 3 {
			t.Errorf("%+v", e)
		}
	}
	if last := entries[3].Argv; last[0] != "/enter" || last[6] != strings.Repeat("ü", journalArg/2) {
		t.Errorf("arguments %q", last)
	}
	if st, err := os.Stat(filepath.Join(p.dir, journal.File)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestAJournalThatCannotBeWrittenCostsNoCall(t *testing.T) {
	p := newFakePod(t, nil)
	if err := os.Mkdir(filepath.Join(p.dir, journal.File), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Invoke(t.Context(), pod.Call{Dir: p.dir, Request: abi.Request{Entrypoint: abi.AppStart, App: "a"}}); err != nil {
		t.Error(err)
	}
}

// An error of one app may quote another. The journal is read when the bundles of both have gone.
func TestErrorsInTheJournalHaveNoSecretsOfAppsAndExecs(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.AppStart: `echo "own CANARY-own-env, CANARY-own-password of CANARY-own-url, other CANARY-other-env" >&3; exit 1`,
		abi.Enter:    `fail 1 "exec CANARY-exec-arg with CANARY-exec-env"`,
	})
	var own string
	for name, env := range map[string]string{
		"own":   `"TOKEN=CANARY-own-env","DB=https://user:CANARY-own-password@CANARY-own-url/","URL=CANARY-own-url"`,
		"other": `"TOKEN=CANARY-other-env"`,
	} {
		bundle, info := t.TempDir(), filepath.Join(p.dir, "appsinfo", name)
		if own == "" || name == "own" {
			own = bundle
		}
		for path, text := range map[string]string{
			filepath.Join(bundle, "config.json"): `{"process":{"args":["x"],"env":[` + env + `]}}`,
			filepath.Join(info, "app.json"):      `{"version":1,"bundle":"` + bundle + `"}`,
		} {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := p.call(abi.AppStart)
	c.Request.Bundle = own
	if err := p.Invoke(t.Context(), c); err == nil || !strings.Contains(err.Error(), "CANARY-own-env") {
		t.Errorf("the client reads %v", err)
	}
	c = p.call(abi.Enter)
	c.Request.Exec, c.Process = "e1", readProcess(`{"args":["sh","--token=CANARY-exec-arg"],"env":["A=CANARY-exec-env"]}`)
	if _, err := p.Enter(t.Context(), c, [3]*os.File{}); err == nil {
		t.Error("no error")
	}
	entries, err := journal.Read(p.dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []string{"own [redacted], [redacted] of [redacted], other [redacted]", "exec [redacted] with [redacted]"} {
		if entries[i].Error != want {
			t.Errorf("%q, want %q", entries[i].Error, want)
		}
	}
}
