package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// maxConsole bounds the file of the console: when it is that long, it becomes empty. The guest
// decides what it prints.
const maxConsole = 1 << 20

// maxLast is how much of the console is in the error of a machine that has ended, with the reason of a panic before
// it if that is in the last maxTail bytes: a kernel prints the reason first, and then pages of registers and calls.
const (
	maxLast = 1024
	maxTail = 16 << 10
	panics  = "Kernel panic"
)

// console keeps what the guest prints.
type console struct {
	input *os.File // for the machine, which closes it
	file  *os.File
	pipe  *os.File
	done  chan struct{}

	mu   sync.Mutex
	tail []byte
}

func newConsole(path string) (*console, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the file of the console: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		file.Close()
		return nil, err
	}
	c := &console{input: w, file: file, pipe: r, done: make(chan struct{})}
	go c.keep()
	return c, nil
}

// keep copies until the machine has ended.
func (c *console) keep() {
	defer close(c.done)
	defer c.file.Close()
	buf, length := make([]byte, 4096), 0
	for {
		n, err := c.pipe.Read(buf)
		if err != nil {
			return
		}
		if length += n; length > maxConsole {
			_ = c.file.Truncate(0)
			length = n
		}
		_, _ = c.file.Write(buf[:n]) // a full disk is no reason to end a machine
		c.mu.Lock()
		c.tail = append(c.tail, buf[:n]...)
		c.tail = c.tail[max(0, len(c.tail)-maxTail):]
		c.mu.Unlock()
	}
}

// last returns the end of what the guest has printed as an error, or nil.
func (c *console) last() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := string(c.tail)
	text := strings.TrimSpace(all[max(0, len(all)-min(maxLast, abi.MaxErrorText)):])
	if text == "" {
		return nil
	}
	if i := strings.LastIndex(all, panics); i >= 0 && !strings.Contains(text, panics) {
		reason, _, _ := strings.Cut(all[i:min(len(all), i+maxLast/4)], "\r\n")
		text = reason + "; ...; " + text
	}
	return fmt.Errorf("the console of the machine ends with: %s", strings.ReplaceAll(text, "\r\n", "; "))
}

// close ends the copying.
func (c *console) close() {
	_ = c.pipe.Close()
	<-c.done
}
