package trace

// exception is a Python exception that the recorded program would have raised. It is
// thrown as a panic, through the model's code.
type exception struct{ err error }

// Raise ends the recording as a Python exception ends the training step; the
// call of [Tape.Try] that is running returns err.
func (t *Tape) Raise(err error) { panic(exception{err}) }

// Try runs f and returns the error it raised, nil if none.
func (t *Tape) Try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exception)
			what, described := r.(string)
			switch {
			case ok:
				err = e.err
			case described && len(t.splits) > 0:
				err = misfit(what)
			default:
				panic(r)
			}
		}
	}()
	f()
	return nil
}
