package container

import (
	"errors"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Error is a failure with an entrypoint's exit code: abi.ExitNotImplemented
// if the spec asks for something that this stage1 cannot do, 1 otherwise.
type Error struct {
	Code int
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// refuse returns the error for a field that this stage1 cannot honour. The field is a path
// into config.json, with dots.
func refuse(field, format string, args ...any) error {
	return &Error{abi.ExitNotImplemented, field + ": " + fmt.Sprintf(format, args...)}
}

// doing adds to an error the step that has failed. For nil it returns nil.
func doing(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 1
}

// outermost returns a refusal that has the text of all errors that wrap it.
func outermost(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Text != err.Error() {
		return &Error{e.Code, err.Error()}
	}
	return err
}
