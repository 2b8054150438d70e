// Package sample lets tests over many cases of a kind be quick when they are
// asked to be: with -short, as under the race detector, which makes them ten
// times slower and looks for something else.
package sample

import "testing"

// every is how many cases there are for one that a short run takes.
const every = 30

// Of returns the cases to test: all, or every thirtieth from the first on in a short
// run.
func Of[T any](all []T) []T {
	if !testing.Short() {
		return all
	}
	var some []T
	for i := 0; i < len(all); i += every {
		some = append(some, all[i])
	}
	return some
}

// Whole skips a test that says something only of all cases together, or that takes
// long and runs in one goroutine.
func Whole(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs all cases")
	}
}
