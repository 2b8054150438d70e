// Package sample keeps tests over large corpora quick. A plain `go test` runs a sample of
// the cases; with VPROF_TESTS=all, which .ci/run sets, it runs all of them. Under the race
// detector, which is ten times slower and looks for something else, -short leaves a few.
package sample

import (
	"os"
	"testing"
)

// Variable names the environment variable that selects the whole corpora with the value "all", and with "nightly" also
// the cases of tests that take minutes.
const (
	Variable = "VPROF_TESTS"
	nightly  = "nightly"
)

// How many cases there are for one that is tested: in a plain run, and in a short one.
const (
	usual = 3
	short = 30
)

// All reports whether tests run all cases.
func All() bool {
	level := os.Getenv(Variable)
	return (level == "all" || level == nightly) && !testing.Short()
}

// OfSlow returns the cases of a test that takes minutes: all of them in a nightly run, or else as [Of] does in a plain
// one.
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

// every returns each of-th case.
func every[T any](all []T, of int) []T {
	some := make([]T, 0, len(all)/of+1)
	for i := 0; i < len(all); i += of {
		some = append(some, all[i])
	}
	return some
}

// Whole skips a test that needs all cases together, or that takes long and repeats what samples test.
func Whole(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("needs all cases: set %s=all", Variable)
	}
}

// Nightly skips a test that takes half a minute and repeats what shorter ones test.
func Nightly(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) != nightly {
		t.Skipf("takes long: set %s=%s", Variable, nightly)
	}
}

// Alone skips a test in a short run, where the race detector looks on: one goroutine works in it, and others run the
// same code.
func Alone(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("has one goroutine, in which the race detector sees nothing")
	}
}
