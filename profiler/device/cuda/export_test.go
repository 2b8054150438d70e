//go:build cuda && linux && cgo

package cuda

// SetWSL makes another file decide whether this is WSL2, until the result is called.
func SetWSL(file string) (restore func()) {
	before := wslNode
	wslNode = file
	return func() { wslNode = before }
}
