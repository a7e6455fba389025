package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// systemd is the service manager of this host.
type systemd struct{}

var _ units = systemd{}

// systemdRuns tells whether systemd is the service manager, as sd_booted(3) does.
func systemdRuns() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// startScope speaks with systemd itself, or over the system's bus.
func (systemd) startScope(ctx context.Context, u unit, pid int) error {
	err := job(ctx, func(conn *dbus.Conn, ended chan<- string) error {
		_, err := conn.StartTransientUnitContext(ctx, u.name, "fail", scopeProperties(u, pid), ended)
		return err
	})
	if isError(err, "UnitExists") {
		return errTaken
	}
	return err
}

func (systemd) stopScope(ctx context.Context, name string) error {
	err := job(ctx, func(conn *dbus.Conn, ended chan<- string) error {
		_, err := conn.StopUnitContext(ctx, name, "replace", ended)
		return err
	})
	if isError(err, "NoSuchUnit") {
		return nil
	}
	return err
}

// job has systemd do something, and waits until it is done.
func job(ctx context.Context, begin func(conn *dbus.Conn, ended chan<- string) error) error {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		var busErr error
		if conn, busErr = dbus.NewSystemConnectionContext(ctx); busErr != nil {
			return fmt.Errorf("connect to systemd: %w", errors.Join(err, busErr))
		}
	}
	defer conn.Close()
	ended := make(chan string, 1)
	if err := begin(conn, ended); err != nil {
		return fmt.Errorf("ask systemd: %w", err)
	}
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("systemd answers: %s", result)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// scopeProperties asks for a scope that is ours below, for every controller, and
// that is forgotten when it has ended, however it did. Limits are the business of
// the cgroup below it, so that there is none on the number of tasks, which would
// otherwise be a share of what the host has.
func scopeProperties(u unit, pid int) []dbus.Property {
	property := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	return []dbus.Property{
		dbus.PropDescription("container " + u.name),
		dbus.PropSlice(u.slice),
		dbus.PropPids(uint32(pid)),
		property("Delegate", true),
		property("DefaultDependencies", false),
		property("CollectMode", "inactive-or-failed"),
		property("CPUAccounting", true),
		property("IOAccounting", true),
		property("MemoryAccounting", true),
		property("TasksAccounting", true),
		property("TasksMax", uint64(math.MaxUint64)),
	}
}

// isError tells whether systemd has answered with one of its errors.
func isError(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}
