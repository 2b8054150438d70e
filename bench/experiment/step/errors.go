package step

import (
	"errors"

	"github.com/vprof/vprof/models"
)

// Refused reports whether an error says that the case cannot be trained, since PyTorch or the
// model refuses it. Other errors are failures.
func Refused(err error) bool {
	var refused *RefusedError
	var impossible *models.CaseError
	return errors.As(err, &refused) || errors.As(err, &impossible)
}

// A RefusedError says that PyTorch would raise an error instead of running a
// case, in its words.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Usage marks the error as bad input.
func (*RefusedError) Usage() bool { return true }
