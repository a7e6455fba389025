package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// endpoint is an entry of rkt's multiplexer for one socket.
type endpoint struct {
	Name    string `json:"name"`
	Domain  string `json:"domain"`
	Address string `json:"address"`
}

// ioMux does in a directory the work of rkt's iottymux for the streams of one app: it
// copies from fifos to sockets, and back. Unlike iottymux it reads nothing before a client
// has connected, and with forwardEnd it passes on the end of an input.
func ioMux(dir, app string, forwardEnd bool, names []string) {
	must(os.Chdir(dir))
	var endpoints []endpoint
	var outputs sync.WaitGroup
	for _, name := range names {
		l, err := net.Listen("unix", "sock-"+name)
		must(err)
		endpoints = append(endpoints, endpoint{name, "unix", filepath.Join("/rkt/iottymux", app, "sock-"+name)})
		if name == "stdin" {
			go muxInput(l, forwardEnd)
			continue
		}
		outputs.Go(func() { muxOutput(l, "stage2-"+name) })
	}
	sayEndpoints(endpoints)
	must(os.WriteFile("READY", nil, 0o600))
	if len(names) == 1 && names[0] == "stdin" {
		forever() // until the app has ended
	}
	outputs.Wait()
}

func sayEndpoints(all []endpoint) {
	text, err := json.Marshal(map[string]any{"version": 1, "targets": all})
	must(err)
	// iottymux does not write the file in one step either.
	f, err := os.OpenFile("endpoints", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	must(err)
	for _, part := range [][]byte{text[:len(text)/2], text[len(text)/2:]} {
		_, err = f.Write(part)
		must(err)
	}
	must(f.Close())
}

func muxInput(l net.Listener, forwardEnd bool) {
	fifo, err := os.OpenFile("stage2-stdin", os.O_WRONLY, 0)
	must(err)
	conn, err := l.Accept()
	must(err)
	_, _ = io.Copy(fifo, conn)
	if forwardEnd {
		must(fifo.Close())
	}
	_ = conn.Close()
}

func muxOutput(l net.Listener, path string) {
	fifo, err := os.Open(path)
	must(err)
	conn, err := l.Accept()
	must(err)
	_, _ = io.Copy(conn, fifo)
	_ = conn.Close()
}

// ttyMux makes a terminal, binds its slave where the app looks for it, and connects its master
// to one client at a time. It sends READY when the app may be started.
func ttyMux(dir, app string) {
	must(os.Chdir(dir))
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	must(err)
	must(unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	must(err)
	must(os.WriteFile("stage2-pts", nil, 0o600))
	must(unix.Mount("/dev/pts/"+strconv.Itoa(n), "stage2-pts", "", unix.MS_BIND, ""))
	l, err := net.Listen("unix", "sock-tty")
	must(err)
	sayEndpoints([]endpoint{{"tty", "unix", filepath.Join("/rkt/iottymux", app, "sock-tty")}})
	must(os.WriteFile("READY", nil, 0o600))
	tty := os.NewFile(uintptr(master), "pty master")
	conn, err := l.Accept()
	must(err)
	go io.Copy(tty, conn) //nolint:errcheck // it ends with the process
	_, _ = io.Copy(conn, tty)
}

// attachMux connects those of its own streams whose flag is true with sockets of a multiplexer,
// like custom-attach.
func attachMux(dir string, flags []string) {
	must(os.Chdir(dir))
	wanted := map[string]bool{}
	for _, f := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		wanted[name] = value == "true"
	}
	var outputs sync.WaitGroup
	for _, s := range []struct {
		socket  string
		in, out *os.File
	}{
		{"stdin", pick(wanted["stdin"], os.Stdin), nil},
		{"stdout", nil, pick(wanted["stdout"], os.Stdout)},
		{"stderr", nil, pick(wanted["stderr"], os.Stderr)},
		{"tty", pick(wanted["tty-in"], os.Stdin), pick(wanted["tty-out"], os.Stdout)},
	} {
		if s.in == nil && s.out == nil {
			continue
		}
		conn, err := net.Dial("unix", "sock-"+s.socket)
		must(err)
		if s.in != nil {
			go func() {
				_, _ = io.Copy(conn, s.in)
				_ = conn.(*net.UnixConn).CloseWrite()
			}()
		}
		if s.out != nil {
			outputs.Go(func() { _, _ = io.Copy(s.out, conn) })
		}
	}
	outputs.Wait()
}

func pick(wanted bool, f *os.File) *os.File {
	if wanted {
		return f
	}
	return nil
}

// onTTY executes a program with a terminal as its streams and controlling terminal.
func onTTY(path string, argv []string) {
	_, err := unix.Setsid()
	must(err)
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	must(err)
	must(unix.IoctlSetInt(fd, unix.TIOCSCTTY, 1))
	for i := range 3 {
		must(unix.Dup3(fd, i, 0))
	}
	must(unix.Close(fd))
	must(unix.Exec(argv[0], argv, os.Environ()))
}
