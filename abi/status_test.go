package abi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAStatusSurvivesTheFile(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []Status{
		{Code: 0, Time: time.Unix(1, 0)},
		{Code: 42, Time: time.Unix(1732159865, 123456789)},
		{Code: 137, Signal: 9, Time: time.Unix(1732159865, 1)},
	} {
		for _, exec := range []string{"", "probe.1"} {
			if err := WriteStatus(dir, "app", exec, want); err != nil {
				t.Fatal(err)
			}
			got, err := ReadStatus(dir, "app", exec)
			if err != nil || got.Code != want.Code || got.Signal != want.Signal || !got.Time.Equal(want.Time) {
				t.Errorf("wrote %+v, read %+v, %v", want, got, err)
			}
		}
	}
}

func TestAShellCanWriteAStatus(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(StatusPath(dir, "app", ""), []byte("42\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := ReadStatus(dir, "app", "")
	if err != nil || s.Code != 42 || time.Since(s.Time) > time.Minute {
		t.Errorf("read %+v, %v; want 42 with the file's time", s, err)
	}
}

func TestWhatIsNoStatusIsRefused(t *testing.T) {
	for _, text := range []string{"", "\n", "x\n", "-1\n", "256\n", "137\nsignal=0\n", "137\nsignal=65\n", "0\ntime=now\n"} {
		if s, err := ParseStatus([]byte(text), time.Now()); !errors.Is(err, ErrStatus) {
			t.Errorf("%q was read as %+v, %v", text, s, err)
		}
	}
	if _, err := ReadStatus(t.TempDir(), "app", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("status of a living app: %v", err)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("137\nsignal=9\ntime=1732159865.123456789\n"))
	f.Add([]byte("0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStatus(b, time.Unix(7, 0))
		if err != nil {
			return
		}
		again, err := ParseStatus(s.Format(), time.Now())
		if err != nil || again.Code != s.Code || again.Signal != s.Signal || !again.Time.Equal(s.Time) {
			t.Errorf("%q became %+v, then %+v, %v", b, s, again, err)
		}
	})
}

func TestARecordIsWrittenToTheRoomThatWasReserved(t *testing.T) {
	dir := t.TempDir()
	if err := ReserveStatus(dir, "app"); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStatus(dir, "app", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reserved room counts as a record: %v", err)
	}
	longest := Status{Code: 192, Signal: 64, Time: time.Unix(maxTime-1, 999999999)}
	if n := len(longest.Format()); n > reserved {
		t.Errorf("a record has up to %d bytes, reserved are %d", n, reserved)
	}
	room, err := os.Stat(filepath.Join(dir, spareOf("app")))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteStatus(dir, "app", "", longest); err != nil {
		t.Fatal(err)
	}
	record, err := os.Stat(StatusPath(dir, "app", ""))
	if err != nil || !os.SameFile(room, record) {
		t.Errorf("the record is another file than the reserved one (%v)", err)
	}
	if s, err := ReadStatus(dir, "app", ""); err != nil || s.Code != 192 {
		t.Errorf("read %+v, %v", s, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left are %v, %v", files, err)
	}
}

// Programs in the pods of rkt's images can write to the directory of records.
func TestRecordsLeadToNoFileOfTheHost(t *testing.T) {
	const host = "a file of the host that is longer than any record of an exit, which has sixty-four bytes at most\n"
	for name, hostile := range map[string]func(t *testing.T, hosts, records string) error{
		"the record": func(t *testing.T, hosts, records string) error { return os.Symlink(hosts+"/file", records+"/app") },
		"its spare": func(t *testing.T, hosts, records string) error {
			return os.Symlink(hosts+"/file", records+"/.app.spare")
		},
		"where records are": func(t *testing.T, hosts, records string) error {
			return errors.Join(os.Remove(records), os.Symlink(hosts, records))
		},
		"where execs' are": func(t *testing.T, hosts, records string) error { return os.Symlink(hosts, records+"/app.exec") },
		"a fifo":           func(t *testing.T, hosts, records string) error { return unix.Mkfifo(records+"/app", 0o600) },
		"a fifo as spare":  func(t *testing.T, hosts, records string) error { return unix.Mkfifo(records+"/.app.spare", 0o600) },
		"a device":         func(t *testing.T, hosts, records string) error { return os.Symlink("/dev/zero", records+"/app") },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			hosts, records := filepath.Join(base, "host"), filepath.Join(base, "pod", StatusDir)
			for _, dir := range []string{hosts, records} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"file", "app", "probe", ".app.spare"} {
				if err := os.WriteFile(filepath.Join(hosts, file), []byte(host), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := hostile(t, hosts, records); err != nil {
				t.Fatal(err)
			}
			done := make(chan bool)
			go func() {
				defer close(done)
				for _, exec := range []string{"", "probe"} {
					if s, err := ReadStatus(records, "app", exec); err == nil {
						t.Errorf("read %+v", s)
					}
					_ = WriteStatus(records, "app", exec, Status{Code: 1})
				}
				_ = ReserveStatus(records, "app")
			}()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatal("it waits")
			}
			for _, file := range []string{"file", "app", "probe", ".app.spare"} {
				if text, err := os.ReadFile(filepath.Join(hosts, file)); err != nil || string(text) != host {
					t.Errorf("the host's %s is %q, %v", file, text, err)
				}
			}
		})
	}
}
