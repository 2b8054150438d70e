// Package sample makes tests over large corpora fast. A plain `go test` runs a sample of the cases. With
// VPROF_TESTS=all, which .ci/run sets, it runs all of them. Under -short, used with the race detector, it runs only a
// few.
package sample

import (
	"os"
	"testing"
)

// Variable is the environment variable that selects all cases with the value "all", and with "nightly" also the tests
// that take minutes.
const (
	Variable = "VPROF_TESTS"
	nightly  = "nightly"
)

// One of so many cases is tested, in a plain and in a short run.
const (
	usual = 3
	short = 30
)

// All reports whether tests run all cases.
func All() bool {
	level := os.Getenv(Variable)
	return (level == "all" || level == nightly) && !testing.Short()
}

// OfSlow returns the cases to run of a test that takes minutes: all in a nightly run, else as many as [Of] in a plain
// run.
func OfSlow[T any](all []T) []T {
	if os.Getenv(Variable) == nightly {
		return all
	}
	return every(all, usual)
}

// Of returns the cases to test: all of them, or every third (every thirtieth in a short run), beginning with the first.
func Of[T any](all []T) []T {
	if All() {
		return all
	}
	if testing.Short() {
		return every(all, short)
	}
	return every(all, usual)
}

// every returns every of-th element.
func every[T any](all []T, of int) []T {
	some := make([]T, 0, len(all)/of+1)
	for i := 0; i < len(all); i += of {
		some = append(some, all[i])
	}
	return some
}

// Whole skips a test unless all cases run: it needs all cases together, or is slow and repeats what samples test.
func Whole(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("needs all cases: set %s=all", Variable)
	}
}

// Nightly skips a test unless the run is nightly: it takes half a minute and repeats what shorter tests cover.
func Nightly(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) != nightly {
		t.Skipf("takes long: set %s=%s", Variable, nightly)
	}
}

// Alone skips a test in a short run, which uses the race detector: it has one goroutine, and other tests run the same
// code.
func Alone(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("has one goroutine, in which the race detector sees nothing")
	}
}
