package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// systemd is the service manager of this host.
type systemd struct {
	mu    sync.Mutex
	found int // its version; 0 if that was not asked for yet
}

var _ units = (*systemd)(nil)

// systemdRuns reports whether systemd is the service manager, as sd_booted(3) does.
func systemdRuns() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// startScope calls systemd over its private socket or over the system's bus.
func (s *systemd) startScope(ctx context.Context, u unit, pid int, limits properties) error {
	err := job(ctx, func(conn *dbus.Conn, ended chan<- string) error {
		has, err := s.known(conn, limits)
		if err != nil {
			return err
		}
		_, err = conn.StartTransientUnitContext(ctx, u.name, "fail", append(scopeProperties(u, pid), has...), ended)
		return err
	})
	if isError(err, "UnitExists") {
		return fmt.Errorf("%w: systemd has a unit of this name", errTaken)
	}
	return err
}

func (s *systemd) setProperties(ctx context.Context, name string, limits properties) error {
	conn, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	has, err := s.known(conn, limits)
	if err == nil && len(has) > 0 {
		const runtime = true // not on disk: the scope does not outlive the boot
		err = conn.SetUnitPropertiesContext(ctx, name, runtime, has...)
	}
	if err != nil {
		return fmt.Errorf("ask systemd: %w", err)
	}
	return nil
}

// known returns those of the properties that this systemd has, in the form of its bus. systemd refuses all properties
// of a call if it does not know one of them.
func (s *systemd) known(conn *dbus.Conn, limits properties) ([]dbus.Property, error) {
	version, err := s.version(conn)
	if err != nil {
		return nil, err
	}
	var has []dbus.Property
	for _, p := range limits.known(version) {
		has = append(has, dbus.Property{Name: p.name, Value: godbus.MakeVariant(p.value)})
	}
	return has, nil
}

// version returns the version of systemd. It is asked for once: an update of systemd while this process runs has all
// properties that the earlier version had.
func (s *systemd) version(conn *dbus.Conn) (int, error) {
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	if found != 0 {
		return found, nil
	}
	text, err := conn.GetManagerProperty("Version")
	if err != nil {
		return 0, fmt.Errorf("its version: %w", err)
	}
	if found, err = versionOf(text); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.found = found
	s.mu.Unlock()
	return found, nil
}

// versionOf returns the number in a version of systemd, such as "v252.39-1~deb12u1" or "245", in quotes or not.
func versionOf(text string) (int, error) {
	digits := strings.TrimLeft(text, `"v`)
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("its version %q has no number", text)
	}
	return n, nil
}

func (*systemd) stopScope(ctx context.Context, name string) error {
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
// controller, and systemd forgets it when it has ended, even if it has failed. Its limits
// are those of scopeLimits.
func scopeProperties(u unit, pid int) []dbus.Property {
	fixed := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	return []dbus.Property{
		dbus.PropDescription("container " + u.name),
		dbus.PropSlice(u.slice),
		dbus.PropPids(uint32(pid)),
		fixed("Delegate", true),
		fixed("DefaultDependencies", false),
		fixed("CollectMode", "inactive-or-failed"),
		fixed("CPUAccounting", true),
		fixed("IOAccounting", true),
		fixed("MemoryAccounting", true),
		fixed("TasksAccounting", true),
	}
}

// isError reports whether systemd has answered with the error of this name.
func isError(err error, name string) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1."+name
}
