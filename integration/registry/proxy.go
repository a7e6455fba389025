package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Proxy is a running HTTPS proxy to one registry. It refuses connections to hosts that the
// registry does not have.
type Proxy struct {
	listener    net.Listener
	certificate []byte
	front, back *http.Server
	running     sync.WaitGroup
}

// Serve starts a proxy to r on a free port of the loopback interface.
func Serve(r *Registry) (*Proxy, error) {
	certificate, err := selfSigned(slices.Sorted(maps.Keys(r.hosts)))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	tunnels := newTunnels(listener.Addr())
	silent := log.New(os.Stderr, "registry: ", 0)
	p := &Proxy{
		listener:    listener,
		certificate: certificate.Certificate[0],
		front:       &http.Server{Handler: connect(r, tunnels), ErrorLog: silent, ReadHeaderTimeout: time.Minute},
		back: &http.Server{Handler: r, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}},
	}
	p.running.Go(func() { _ = p.front.Serve(listener) }) // both return when their listener is closed
	p.running.Go(func() { _ = p.back.ServeTLS(tunnels, "", "") })
	return p, nil
}

// Environment writes the proxy's certificate to a file, and returns the variables that make Go
// programs use and trust the proxy.
func (p *Proxy) Environment(file string) ([]string, error) {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate})
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	return []string{"HTTPS_PROXY=http://" + p.listener.Addr().String(), "SSL_CERT_FILE=" + file}, nil
}

// Close ends the proxy and closes its connections.
func (p *Proxy) Close() error {
	err := errors.Join(p.front.Close(), p.back.Close())
	p.running.Wait()
	return err
}

// connect answers a client's CONNECT and passes its connection to the listener.
func connect(r *Registry, to *tunnels) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		host, _, err := net.SplitHostPort(req.Host)
		if req.Method != http.MethodConnect || err != nil || !r.hosts[host] {
			http.Error(w, fmt.Sprintf("no registry %q is here", req.Host), http.StatusBadGateway)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil || !to.pass(conn) {
			conn.Close()
		}
	}
}

// tunnels is a listener whose Accept returns connections that connect has passed to it.
type tunnels struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newTunnels(address net.Addr) *tunnels {
	return &tunnels{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (t *tunnels) pass(c net.Conn) bool {
	select {
	case t.conns <- c:
		return true
	case <-t.closed:
		return false
	}
}

func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

func (t *tunnels) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

func (t *tunnels) Addr() net.Addr { return t.address }

// selfSigned makes a self-signed certificate for some hosts.
func selfSigned(hosts []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "registry of the test images"},
		DNSNames:              hosts,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
