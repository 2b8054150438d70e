package trace

// Exception is what the recorded program would have raised, on its way up
// through the model's code.
type exception struct{ err error }

// Raise ends the recording as a Python exception ends the training step; the
// call of [Tape.Try] that is running returns err.
func (t *Tape) Raise(err error) { panic(exception{err}) }

// Try runs f and returns the error it raised, nil if none.
func (t *Tape) Try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exception)
			if !ok {
				panic(r)
			}
			err = e.err
		}
	}()
	f()
	return nil
}
