// Command nginx is the web server of critest's images. It has the name, the pid file, the ports
// and a page that the suite expects.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	port := flag.Int("port", 80, "port")
	flag.Parse()
	if err := serve(*port); err != nil {
		fmt.Fprintln(os.Stderr, "nginx:", err)
		os.Exit(1)
	}
}

func serve(port int) error {
	if err := os.MkdirAll("/var/run", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/var/run/nginx.pid", fmt.Appendln(nil, os.Getpid()), 0o644); err != nil {
		return err
	}
	// The original opens its error log, which is a link to /dev/stderr. So does this program,
	// because a user who may write to stderr may not be allowed to open it.
	log, err := os.OpenFile("/dev/stderr", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "httpd: port %d: start worker processes\n", port)
	server := http.Server{
		Addr:              fmt.Sprintf(":%d", port),
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "It works!") }),
		ReadHeaderTimeout: time.Minute,
	}
	return server.ListenAndServe()
}
