package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

const canary = "CANARY-5ecret"

// hostileBundle writes a config.json with a secret in every place that is private.
func hostileBundle(t *testing.T, id string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), id)
	text := `{"process":{"args":["prog","--password=CANARY-5ecret-args-and-much-more-of-it"],"env":["PATH=/bin","TOKEN=CANARY-5ecret-env"]},
	"annotations":{"io.containerd.rkt.v1/stage1":"oci","example.com/key":"CANARY-5ecret-annotation",
	"io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.container-name":"app"},
	"hooks":{"prestart":[{"path":"/h","args":["h","CANARY-5ecret-hook"],"env":["H=CANARY-5ecret-hookenv"]}]},
	"mounts":[{"destination":"/m","options":["ro","password=CANARY-5ecret-mount"]}]}`
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fail(t *testing.T, data, id, text string, calls ...journal.Entry) {
	t.Helper()
	err := KeepFailure(data, FailedStart{
		Step: StepCreate, Namespace: "ns", Error: text, Calls: calls,
		Starts: []Start{{Time: time.Now(), ID: id, Bundle: hostileBundle(t, id)}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func failures(t *testing.T, data string) []FailedStart {
	t.Helper()
	all, err := Failures(data)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestARecordOfAFailedStartHasNoSecretAndNoEscape(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	text := "\x1b]0;owned\a failed: TOKEN=CANARY-5ecret-env, and \"CANARY-5ecret-args-and…\" CANARY-5ecret-hook CANARY-5ecret-hookenv CANARY-5ecret-mount CANARY-5ecret-annotation"
	fail(t, data, "a", text, journal.Entry{Entrypoint: "app/add", Code: 1, Error: "\x1b[2J said CANARY-5ecret-env"})
	files, err := filepath.Glob(filepath.Join(data, "failed", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "CANARY") {
		t.Errorf("a secret is in %s", raw)
	}
	f := failures(t, data)[0]
	for _, text := range []string{f.Error, f.Calls[0].Error} {
		if strings.ContainsAny(text, "\x1b\a") || !strings.Contains(text, redacted) {
			t.Errorf("%q", text)
		}
	}
	if f.Annotations["io.containerd.rkt.v1/stage1"] != "oci" || len(f.Annotations) != 1 || f.Last().Kubernetes != "shop/web-0/app" {
		t.Errorf("%+v", f)
	}
	for path, want := range map[string]os.FileMode{files[0]: 0o600, filepath.Dir(files[0]): 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestSecretsAreFoundWhereverTheyAreInAText(t *testing.T) {
	s := &Secrets{texts: []string{"secret", "secretsecretsecret", "aaaaaaaaaaaab", "aaaaaaaaaaaaab", "line\nof\ntext!", "short", "      ", "has \"quotes\" inside"}}
	for text, want := range map[string]string{
		"":                                      "",
		"a secret and secretsecretsecre":        "a [redacted] and [redacted]",
		"secretsecrets, secrets":                "[redacted], [redacted]s",
		"secretsecre":                           "[redacted]secre",
		"aaaaaaaaaaaaaab":                       "[redacted]ab",
		"xaaaaaaaaaaaabx":                       "x[redacted]x",
		"line\nof\ntext! and line\\nof\\ntext!": "[redacted] and [redacted]",
		"short,       , secre":                  "short,       , secre",
		`has \"quotes\" inside`:                 "[redacted]",
	} {
		if got := s.Redact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	s.texts = []string{"added later"}
	if got := s.Redact("secret added later"); got != "[redacted] [redacted]" {
		t.Errorf("%q", got)
	}
}

func TestPartsOfAnArgumentAreSecretByThemselves(t *testing.T) {
	var s Secrets
	s.AddProcess([]string{"program", "--password=in-an-argument", "--env=TOKEN=in-the-second-part", "postgres://somebody:pass%2Fword@db.example:5432/x?y=1",
		"curl -u x https://one:first-password@a/ https://second-user@b"}, []string{"URL=amqp://guest:in-the-environment@mq"})
	for text, want := range map[string]string{
		"refused in-an-argument":                  "refused [redacted]",
		"--password=in-an-argument":               "[redacted]",
		"TOKEN in-the-second-part":                "TOKEN [redacted]",
		"password pass%2Fword":                    "password [redacted]",
		"password pass/word of somebody":          "password [redacted] of somebody",
		"login somebody:pass%2Fword at db":        "login [redacted] at db",
		"first-password, second-user":             "[redacted], [redacted]",
		"in-the-environment":                      "[redacted]",
		"db.example:5432 and /x are no passwords": "db.example:5432 and /x are no passwords",
	} {
		if got := s.Redact(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A client decides how many texts a spec has, and waits for the answer meanwhile.
func TestManySecretsDoNotHoldUpTheAnswer(t *testing.T) {
	s := &Secrets{}
	for i := range 200_000 {
		s.texts = append(s.texts, fmt.Sprintf("the same beginning %d", i))
	}
	text := strings.Repeat("the same beginnin, the same ", failedText/28)
	began := time.Now()
	for range failedCalls {
		s.Redact(text)
	}
	if took := time.Since(began); took > 2*time.Second*wait.Busyness() {
		t.Errorf("it took %s", took)
	}
}

func FuzzSecrets(f *testing.F) {
	f.Add("secret-one", "secret-two-and-more", "a secret-one b secret-two-and-more")
	f.Fuzz(func(t *testing.T, a, b, text string) {
		s := &Secrets{texts: []string{a, b}}
		got := s.Redact(text)
		for _, secret := range []string{a, b} {
			// A secret may be put together by the text beside one that was removed.
			if len(secret) >= minSecret && strings.TrimSpace(secret) != "" && !strings.Contains(redacted, secret) && strings.Contains(got, secret) && !strings.Contains(got, redacted) {
				t.Errorf("%q is in %q", secret, got)
			}
		}
	})
}

func TestOfASandboxesAnnotationsOnlyOursAreKept(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	annotations := map[string]string{"io.containerd.rkt.v1/stage1": "oci", "other": canary}
	err := KeepFailure(data, FailedStart{Step: StepCreateSandbox, Annotations: annotations, Starts: []Start{{ID: "a", Bundle: t.TempDir()}}})
	if err != nil {
		t.Fatal(err)
	}
	if all := failures(t, data); len(all[0].Annotations) != 1 || all[0].Annotations["io.containerd.rkt.v1/stage1"] != "oci" {
		t.Errorf("%+v", all)
	}
	s, err := OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Create(Key{Sandbox: "box"}, Stage1Record{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Remove(t.Context()) }()
	if _, err := d.NewSandboxFiles(Sandbox{ID: "box", Bundle: t.TempDir(), Annotations: annotations}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.Path(), "sandbox.json"))
	if err != nil || strings.Contains(string(text), canary) || !strings.Contains(string(text), `"annotations":{"io.containerd.rkt.v1/stage1":"oci"}`) {
		t.Errorf("%s, %v", text, err)
	}
	r, err := NewReader(data)
	if err != nil {
		t.Fatal(err)
	}
	files, err := r.Read(d.UUID())
	if err != nil || files.Sandbox == nil || files.Sandbox.Annotations["io.containerd.rkt.v1/stage1"] != "oci" {
		t.Errorf("%+v, %v", files, err)
	}
}

func TestStartsThatFailForOneReasonHaveOneRecord(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	for i := range failedStarts + 4 {
		id := fmt.Sprintf("container-%d", i)
		fail(t, data, id, "container "+id+": no such program")
	}
	fail(t, data, "other", "another reason")
	all := failures(t, data)
	if len(all) != 2 || all[0].Error != "another reason" {
		t.Fatalf("%+v", all)
	}
	if f := all[1]; f.Count != failedStarts+4 || len(f.Starts) != failedStarts || f.Last().ID != "container-11" || !f.First.Before(f.Last().Time) {
		t.Errorf("%+v", f)
	}
}

func TestRecordsOfFailedStartsAreBoundedInNumberSizeAndAge(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	var calls []journal.Entry
	for range 100 {
		calls = append(calls, journal.Entry{Entrypoint: "app/add", Error: strings.Repeat("x", 1024)})
	}
	for i := range failedMax + 8 {
		fail(t, data, "id", fmt.Sprintf("reason %d %s", i, strings.Repeat("y", 2*failedText)), calls...)
	}
	dir := filepath.Join(data, "failed")
	size := int64(0)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != failedMax {
		t.Fatalf("%d records, %v", len(entries), err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size > failedMax*failedSize {
		t.Errorf("%d bytes", size)
	}
	left := filepath.Join(dir, failedTmp+"killed")
	old := time.Now().Add(-failedAge - time.Hour)
	for _, path := range []string{left, filepath.Join(dir, entries[0].Name())} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	fail(t, data, "id", "one more")
	for _, path := range []string{left, filepath.Join(dir, entries[0].Name())} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestShimsMayKeepFailedStartsAtTheSameTime(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	var wg sync.WaitGroup
	for i := range 8 {
		id := fmt.Sprint("c", i)
		bundle := hostileBundle(t, id)
		wg.Go(func() {
			for j := range 16 {
				err := KeepFailure(data, FailedStart{Step: StepCreate, Error: fmt.Sprint("reason ", j), Starts: []Start{{Time: time.Now(), ID: id, Bundle: bundle}}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(failures(t, data)); n != 16 {
		t.Errorf("%d records", n)
	}
}

func TestADamagedRecordOfAFailedStartIsReplaced(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	fail(t, data, "a", "why")
	files, _ := filepath.Glob(filepath.Join(data, "failed", "*"))
	for _, text := range []string{"", "[1]", `{"version":9}`, strings.Repeat("x", failedSize+10)} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all := failures(t, data); len(all) != 0 {
			t.Errorf("%.10s: %+v", text, all)
		}
		fail(t, data, "a", "why")
		if all := failures(t, data); len(all) != 1 || all[0].Count != 1 {
			t.Errorf("%.10s: %+v", text, all)
		}
	}
}

func TestADataDirectoryWithoutRoomGivesAnErrorAndNothingElse(t *testing.T) {
	data := filepath.Join(t.TempDir(), "rkt")
	if err := os.MkdirAll(data, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "failed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := KeepFailure(data, FailedStart{Step: StepCreate, Starts: []Start{{ID: "a"}}}); err == nil {
		t.Error("no error")
	}
}

func TestAFullDiskKeepsNoRecordAndNothingHalfWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	data := t.TempDir()
	if err := unix.Mount("none", data, "tmpfs", 0, "size=16k,mode=711"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(data, unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(data, "full"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	err := KeepFailure(data, FailedStart{Step: StepCreate, Error: "why", Starts: []Start{{ID: "a"}}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(data, "failed")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTheCallsOfAFailedStartHaveNoArgumentsAndNoneOfOtherApps(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "rkt"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Create(Key{Sandbox: "s"}, Stage1Record{Name: "native"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Remove(t.Context()) }()
	lines := `{"time":"2026-01-02T03:04:05Z","entrypoint":"run","argv":["/run","` + canary + `"],"ms":1,"code":0}
{"entrypoint":"app/add","app":"other","ms":1,"code":0}
{"entrypoint":"app/add","app":"mine","argv":["/add","` + canary + `"],"ms":2,"code":3,"error":"no"}
{"half a li`
	if err := os.WriteFile(filepath.Join(d.Path(), "journal"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d.Calls("mine"))
	want := `[{"time":"2026-01-02T03:04:05Z","entrypoint":"run","ms":1,"code":0},{"time":"0001-01-01T00:00:00Z","entrypoint":"app/add","app":"mine","ms":2,"code":3,"error":"no"}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
