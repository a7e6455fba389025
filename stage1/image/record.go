package image

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// readRecord reads a record, which is a JSON file.
func readRecord(file string, record any) error {
	text, err := proc.ReadFile(file)
	if err != nil {
		return err
	}
	return plainjson.Decode(text, record)
}

// replace writes a record by rename. The record need not survive a crash of the machine.
// Several processes may replace the same record concurrently.
func replace(path string, record any) error {
	text, err := plainjson.Encode(record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), tmpPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeSynced writes a record. The record survives a crash of the machine once its
// directory is synced, too. flag is os.O_EXCL or os.O_TRUNC.
func writeSynced(file string, flag int, record any) error {
	text, err := plainjson.Encode(record)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|flag|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
