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

// systemdRuns reports whether systemd is the service manager, as sd_booted(3) does.
func systemdRuns() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// startScope calls systemd over its private socket or over the system's bus.
func (systemd) startScope(ctx context.Context, u unit, pid int) error {
	err := job(ctx, func(conn *dbus.Conn, ended chan<- string) error {
		_, err := conn.StartTransientUnitContext(ctx, u.name, "fail", scopeProperties(u, pid), ended)
		return err
	})
	if isError(err, "UnitExists") {
		return fmt.Errorf("%w: systemd has a unit of this name", errTaken)
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

// job starts a job of systemd's, and waits until it is done.
func job(ctx context.Context, begin func(conn *dbus.Conn, ended chan<- string) error) error {
	conn, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
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

// connect opens a connection that does not end with ctx. If one ends while it is being made,
// package dbus leaves a goroutine behind.
func connect(ctx context.Context) (*dbus.Conn, error) {
	type result struct {
		conn *dbus.Conn
		err  error
	}
	made := make(chan result, 1)
	go func() {
		lasting := context.WithoutCancel(ctx)
		conn, err := dbus.NewSystemdConnectionContext(lasting)
		if err != nil {
			var busErr error
			if conn, busErr = dbus.NewSystemConnectionContext(lasting); busErr != nil {
				err = errors.Join(err, busErr)
			} else {
				err = nil
			}
		}
		made <- result{conn, err}
	}()
	select {
	case r := <-made:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// scopeProperties returns the properties of a scope. The scope is delegated with every
// controller, and systemd forgets it when it has ended, even if it has failed. The scope
// has no limit of tasks, which systemd would set by default, because the app's cgroup below
// the scope has the limits.
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

// isError reports whether systemd has answered with the error of this name.
func isError(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}
