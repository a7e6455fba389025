package main

import (
	"net"
	"testing"
)

func TestAServerOfTheOtherFamilyOfTheLoopbackIsReached(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t.Context(), net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
