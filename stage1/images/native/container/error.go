package container

import (
	"errors"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Error is a failure with an entrypoint's exit code: abi.ExitNotImplemented
// when the spec asks for what this stage1 cannot do, 1 otherwise.
type Error struct {
	Code int
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// refuse says that a field holds what this stage1 cannot do. The field is named
// as a path into config.json, with dots.
func refuse(field, format string, args ...any) error {
	return &Error{abi.ExitNotImplemented, field + ": " + fmt.Sprintf(format, args...)}
}

// codeOf returns the exit code that an error stands for.
func codeOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 1
}

// outermost gives a refusal the text of everything that wraps it.
func outermost(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Text != err.Error() {
		return &Error{e.Code, err.Error()}
	}
	return err
}
