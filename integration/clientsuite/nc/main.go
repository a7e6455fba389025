// Command nc is the nc of the client suite's images: `nc -l -p PORT` waits for connections
// until SIGTERM, and then exits with 143 even if it is PID 1. SIGTERM does not end the nc of
// Debian's busybox in that case.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	flag.Bool("l", true, "listen; there is nothing else")
	port := flag.Int("p", 0, "port")
	flag.Parse()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "nc:", err)
		os.Exit(1)
	}
	go serve(listener)
	<-term
	os.Exit(128 + int(syscall.SIGTERM))
}

func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(os.Stdout, conn) // the peer's end is the end
		conn.Close()
	}
}
