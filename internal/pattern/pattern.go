// Package pattern compiles regular expressions when they are first used. A command uses few of the program's
// expressions, and compiling all takes longer than a plan of a small model.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that returns the compiled expression. It panics where [regexp.MustCompile] does.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
