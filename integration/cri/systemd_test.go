package cri

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// drivers returns the drivers of cgroups that pods can be tested with; true is systemd's.
func drivers() []bool {
	if systemdRuns() {
		return []bool{false, true}
	}
	return []bool{false}
}

// systemdRuns reports whether systemd is running. In an enclosure it never is.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// slicePath returns the path of a slice. The name of the slice contains the names of the slices
// above it.
func slicePath(name string) string {
	path, prefix := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		prefix += part
		path = filepath.Join(path, prefix+".slice")
		prefix += "-"
	}
	return path
}

// systemd connects to systemd, until the test ends.
func systemd(t *testing.T) (context.Context, *dbus.Conn) {
	t.Helper()
	ctx := testContext(t)
	s, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return ctx, s
}

// startSlice starts a slice as the kubelet does. It is stopped after the test.
func startSlice(t *testing.T, name string) {
	t.Helper()
	properties := []dbus.Property{dbus.PropDescription("a pod of the test's")}
	for _, of := range []string{"CPUAccounting", "IOAccounting", "MemoryAccounting", "TasksAccounting"} {
		properties = append(properties, dbus.Property{Name: of, Value: godbus.MakeVariant(true)})
	}
	job(t, func(ctx context.Context, s *dbus.Conn, ended chan<- string) (int, error) {
		return s.StartTransientUnitContext(ctx, name, "fail", properties, ended)
	})
	t.Cleanup(func() {
		job(t, func(ctx context.Context, s *dbus.Conn, ended chan<- string) (int, error) {
			return s.StopUnitContext(ctx, name, "replace", ended)
		})
	})
}

// limitSlice sets properties of a slice.
func limitSlice(t *testing.T, name string, limits map[string]uint64) {
	t.Helper()
	ctx, s := systemd(t)
	var properties []dbus.Property
	for name, value := range limits {
		properties = append(properties, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
	}
	if err := s.SetUnitPropertiesContext(ctx, name, true, properties...); err != nil {
		t.Fatalf("limit %s: %v", name, err)
	}
}

// reloadSystemd has systemd read its configuration again. systemd then writes some of its own
// limits to the cgroups that it manages.
func reloadSystemd(t *testing.T) {
	t.Helper()
	ctx, s := systemd(t)
	if err := s.ReloadContext(ctx); err != nil {
		t.Fatalf("reload systemd: %v", err)
	}
}

// job starts a job of systemd's and waits until it is done.
func job(t *testing.T, begin func(ctx context.Context, s *dbus.Conn, ended chan<- string) (int, error)) {
	t.Helper()
	ctx, s := systemd(t)
	ended := make(chan string, 1)
	if _, err := begin(ctx, s, ended); err != nil {
		t.Fatalf("systemd: %v", err)
	}
	select {
	case result := <-ended:
		if result != "done" {
			t.Errorf("systemd: %s", result)
		}
	case <-ctx.Done():
		t.Error("systemd: ", ctx.Err())
	}
}
