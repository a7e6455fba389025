package pod

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

func TestSignalsGoToWhatStandsInThePlaceOfAProcess(t *testing.T) {
	var got []syscall.Signal
	p := &process{terminal: true, stdio: &noStdio{}}
	p.exists(&Process{PID: os.Getpid(), Signal: func(sig syscall.Signal) error {
		got = append(got, sig)
		return nil
	}}, false)
	if err := sendByPID(p, os.Getpid(), 0, int(syscall.SIGKILL)); err != nil {
		t.Error(err)
	}
	if err := p.resize(Size{80, 25}); err != nil {
		t.Error(err)
	}
	if err := sendByPID(p, os.Getpid(), 0, 0); err != nil {
		t.Errorf("it is not there: %v", err)
	}
	if want := []syscall.Signal{syscall.SIGKILL, syscall.SIGWINCH}; !slices.Equal(got, want) {
		t.Errorf("it got %v, want %v", got, want)
	}
}
