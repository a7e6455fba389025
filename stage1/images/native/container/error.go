package container

import (
	"errors"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// refuse returns the error for a field that this stage1 cannot honour. The field is a path
// into config.json, with dots.
func refuse(field, format string, args ...any) error {
	return serve.Unsupported("%s: %s", field, fmt.Sprintf(format, args...))
}

// doing adds to an error the step that has failed. For nil it returns nil.
func doing(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// outermost returns a refusal that has the text of all errors that wrap it.
func outermost(err error) error {
	if f := (*serve.Failure)(nil); errors.As(err, &f) && f.Text != err.Error() {
		return &serve.Failure{Code: f.Code, Text: err.Error()}
	}
	return err
}
